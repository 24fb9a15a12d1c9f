package mirror

import (
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// ignoreFile is the name of the files whose patterns the package applies.
const ignoreFile = ".gitignore"

// stagingPrefix begins the name of the directory that contains files from a sandbox until they are
// complete.
const stagingPrefix = ".e2bctl-sync-"

// rule is one pattern, as gitignore(5) describes it.
type rule struct {
	glob     string
	negated  bool
	dirOnly  bool
	anchored bool // the pattern is compared with the whole path, not only with the last name in it
}

// rules are the ignore patterns for one directory tree.
type rules struct {
	exclude []rule            // patterns of the command line, which come before all others
	files   map[string][]rule // the patterns of each .gitignore, by its directory
	dirs    map[string]bool   // cached results for directories
}

func newRules(exclude []string) *rules {
	return &rules{exclude: parseRules(exclude), files: map[string][]rule{}, dirs: map[string]bool{}}
}

// add adds the .gitignore of a directory.
func (r *rules) add(dir, text string) {
	r.files[dir] = parseRules(strings.Split(strings.TrimPrefix(text, "\ufeff"), "\n"))
}

// ignored reports whether an entry, or a directory above it, is ignored.
func (r *rules) ignored(name string, isDir bool) bool {
	if name == "." {
		return false
	}
	if isDir {
		if known, ok := r.dirs[name]; ok {
			return known
		}
	}
	ignored := r.ignored(path.Dir(name), true) || r.matches(name, isDir)
	if isDir {
		r.dirs[name] = ignored
	}
	return ignored
}

// matches reports whether the entry itself is ignored, apart from the directories above it.
// Patterns of the command line decide first. Of the .gitignore files with a matching pattern, the
// one nearest to the entry decides. In that file, the last matching pattern decides.
func (r *rules) matches(name string, isDir bool) bool {
	base := path.Base(name)
	if strings.EqualFold(base, ".git") || strings.HasPrefix(base, stagingPrefix) {
		return true
	}
	if ignored, ok := decide(r.exclude, name, isDir); ok {
		return ignored
	}
	for dir := path.Dir(name); ; dir = path.Dir(dir) {
		if ignored, ok := decide(r.files[dir], strings.TrimPrefix(name, dir+"/"), isDir); ok {
			return ignored
		}
		if dir == "." {
			return false
		}
	}
}

func decide(rules []rule, name string, isDir bool) (ignored, ok bool) {
	for _, rule := range slices.Backward(rules) {
		if rule.dirOnly && !isDir {
			continue
		}
		text := name
		if !rule.anchored {
			text = path.Base(name)
		}
		// A pattern that makes no sense matches nothing, as in git.
		if matched, err := doublestar.Match(rule.glob, text); err == nil && matched {
			return !rule.negated, true
		}
	}
	return false, false
}

func parseRules(lines []string) (all []rule) {
	for _, line := range lines {
		line = trimSpaces(strings.TrimSuffix(line, "\r"))
		if line == "" || line[0] == '#' {
			continue
		}
		var r rule
		line, r.negated = strings.CutPrefix(line, "!")
		line, r.dirOnly = strings.CutSuffix(line, "/")
		r.anchored = strings.Contains(line, "/")
		line = strings.TrimPrefix(line, "/")
		if inside, ok := strings.CutSuffix(line, "/**"); ok {
			line = inside + "/**/*" // everything below the directory, but not the directory itself
		}
		// Braces are alternatives for the library, and plain characters for git.
		r.glob = braces.Replace(line)
		all = append(all, r)
	}
	return all
}

// braces escapes braces that are not escaped.
var braces = strings.NewReplacer(`\\`, `\\`, `\{`, `\{`, `\}`, `\}`, "{", `\{`, "}", `\}`)

// trimSpaces removes the spaces at the end of a pattern that are not escaped by a backslash.
func trimSpaces(line string) string {
	trimmed := strings.TrimRight(line, " ")
	slashes := len(trimmed) - len(strings.TrimRight(trimmed, `\`))
	if len(trimmed) < len(line) && slashes%2 == 1 {
		return trimmed + " "
	}
	return trimmed
}
