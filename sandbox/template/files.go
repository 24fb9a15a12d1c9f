package template

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// ignoreFile is the file with the patterns of files not to copy, in the syntax of Docker.
const ignoreFile = ".dockerignore"

// maxIgnoreFile limits the bytes of an ignore file.
const maxIgnoreFile = 1 << 20

// source is the source directory of copies.
type source struct {
	root    *os.Root
	fsys    fs.FS // the file system of root
	ignored *patternmatcher.PatternMatcher
	notes   map[string]bool // the keys are notices about files that are not copied, with reasons
}

// openSource opens a directory. ignored names the ignore file to read instead of the directory's
// own; it may be empty. patterns take precedence, because they apply after the patterns of the
// ignore file.
func openSource(dir, ignored string, patterns []string) (*source, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the directory to copy from: %w", err)
	}
	s := &source{root: root, fsys: root.FS(), notes: map[string]bool{}}
	if s.ignored, err = s.readIgnored(ignored, patterns); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return s, nil
}

func (s *source) close() { _ = s.root.Close() }

// note records a file that is not copied, with the reason.
func (s *source) note(format string, args ...any) { s.notes[fmt.Sprintf(format, args...)] = true }

func (s *source) readIgnored(path string, patterns []string) (*patternmatcher.PatternMatcher, error) {
	more := io.Reader(strings.NewReader(strings.Join(patterns, "\n")))
	file, err := s.root.Open(ignoreFile)
	if path != "" {
		file, err = os.Open(path)
	}
	switch {
	case err == nil:
		defer file.Close()
		more = io.MultiReader(io.LimitReader(file, maxIgnoreFile), strings.NewReader("\n"), more)
	case path != "" || !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	all, err := ignorefile.ReadAll(more)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", cmp.Or(path, ignoreFile), err)
	}
	matcher, err := patternmatcher.New(all)
	if err != nil {
		return nil, fmt.Errorf("the patterns of files to leave out, in %s or BuildParams.Ignore: %w", cmp.Or(path, ignoreFile), err)
	}
	return matcher, nil
}

// file is an entry to copy: a file, a directory without its entries, or a symlink.
type file struct {
	name string      // path in the source, with slashes; "." is the source itself
	info fs.FileInfo // describes the file; for a symlink, it describes the symlink itself
	to   string      // the name in the archive; "" means the name in the source
}

// packed returns the file's name in the archive.
func (f file) packed() string { return cmp.Or(f.to, f.name) }

// contextPath returns the shortest form of a path or pattern in the source directory.
func contextPath(source string) (string, error) {
	slashed := filepath.ToSlash(source)
	switch clean := path.Clean(slashed); {
	case source == "":
		return "", errors.New("copy: the source is empty")
	case path.IsAbs(slashed) || filepath.IsAbs(source):
		return "", fmt.Errorf("copy %q: an absolute path; sources are relative to BuildParams.Dir", source)
	case clean == ".." || strings.HasPrefix(clean, "../"):
		return "", fmt.Errorf("copy %q: it leads out of the directory to copy from", source)
	default:
		return clean, nil
	}
}

// find returns the files that match a path or a pattern, including the content of directories,
// in the order of E2B's builders.
func (s *source) find(pattern string) ([]file, error) {
	clean, err := contextPath(pattern)
	if err != nil {
		return nil, err
	}
	matches, err := s.match(clean)
	if err != nil {
		return nil, fmt.Errorf("copy %q: %w", pattern, err)
	}
	// Parents come before their content, so that nothing is walked twice.
	slices.SortFunc(matches, func(a, b string) int { return depth(a) - depth(b) })
	w := walk{source: s, found: map[string]file{}}
	for _, name := range matches {
		if err := w.add(name); err != nil {
			return nil, fmt.Errorf("copy %q: %w", pattern, err)
		}
	}
	if len(w.found) == 0 {
		return nil, notThere(pattern)
	}
	return sorted(w.found), nil
}

func notThere(pattern string) error {
	return fmt.Errorf("copy %q: %w in the directory to copy from, or everything is ignored, or a socket or pipe", pattern, fs.ErrNotExist)
}

// sorted returns files in the order of their names in the archive.
func sorted(found map[string]file) []file {
	files := slices.Collect(maps.Values(found))
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(sortKey(a.packed()), sortKey(b.packed())) })
	return files
}

// match returns the names that match a path or a pattern. Services treat a source with a special
// character of patterns as a pattern, so such a source cannot be a name.
func (s *source) match(pattern string) ([]string, error) {
	_, err := s.root.Lstat(pattern)
	if isPattern(pattern) {
		// Services do not treat braces as special.
		braces := strings.NewReplacer("{", `\{`, "}", `\}`)
		matches, failed := doublestar.Glob(s.fsys, braces.Replace(pattern), doublestar.WithNoFollow(), doublestar.WithFailOnIOErrors())
		if failed == nil && len(matches) == 0 && err == nil {
			return nil, errors.New("it is read as a pattern, which matches nothing; copy the directory that it is in")
		}
		return matches, failed
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return []string{pattern}, err
}

func depth(name string) int {
	if name == "." {
		return 0
	}
	return 1 + strings.Count(name, "/")
}

// sortKey returns the key for sorting a name. The source itself comes first.
func sortKey(name string) string {
	if name == "." {
		return ""
	}
	return name
}

// walk collects files.
type walk struct {
	*source

	found  map[string]file
	walked []string // the directories that were added with their content
}

// add adds the file or directory called name, unless it is ignored. A directory is added with its
// content. A name inside a directory that was already added is skipped.
func (w *walk) add(name string) error {
	for _, dir := range w.walked {
		if dir == "." || strings.HasPrefix(name, dir+"/") {
			return nil
		}
	}
	if name != "." {
		if ignored, err := w.ignores(name); err != nil || ignored {
			return err
		}
	}
	info, err := w.root.Lstat(name)
	if err != nil {
		return err
	}
	if err := w.take(name, info); err != nil || !info.IsDir() {
		return err
	}
	w.walked = append(w.walked, name)
	return w.enter(name)
}

// take adds one file. Like Docker, it skips sockets and pipes, because running programs leave these
// in the directory.
func (w *walk) take(name string, info fs.FileInfo) error {
	if info.Mode()&(fs.ModeSocket|fs.ModeNamedPipe) != 0 {
		w.note("%s is not copied: it is a socket or a pipe", name)
		return nil
	}
	if kind := info.Mode().Type(); kind&^(fs.ModeDir|fs.ModeSymlink) != 0 {
		return fmt.Errorf("%s is neither a file nor a directory nor a symlink (%v)", name, info.Mode())
	}
	w.found[name] = file{name: name, info: info}
	return nil
}

// enter adds the content of a directory.
func (w *walk) enter(dir string) error {
	entries, err := fs.ReadDir(w.fsys, dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := path.Join(dir, entry.Name())
		ignored, err := w.ignores(name)
		if err != nil {
			return err
		}
		if !ignored {
			info, err := entry.Info()
			if err != nil {
				return err
			}
			if err := w.take(name, info); err != nil {
				return err
			}
		}
		if entry.IsDir() && (!ignored || w.mayWantBelow(name)) {
			if err := w.enter(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// ignores reports whether a name, or a directory that contains it, is ignored.
func (s *source) ignores(name string) (bool, error) {
	var of patternmatcher.MatchInfo
	var ignored bool
	for at := 0; at < len(name); {
		end := strings.IndexByte(name[at:], '/')
		if end < 0 {
			end = len(name) - at
		}
		var err error
		if ignored, of, err = s.ignored.MatchesUsingParentResults(name[:at+end], of); err != nil {
			return false, err
		}
		at += end + 1
	}
	return ignored, nil
}

// mayWantBelow reports whether a pattern that begins with "!" may match something in an ignored
// directory.
func (s *source) mayWantBelow(dir string) bool {
	if !s.ignored.Exclusions() {
		return false
	}
	names := strings.Split(dir, "/")
	return slices.ContainsFunc(s.ignored.Patterns(), func(p *patternmatcher.Pattern) bool {
		return p.Exclusion() && reaches(strings.Split(filepath.ToSlash(p.String()), "/"), names)
	})
}

// reaches reports whether a pattern may match a file inside a directory. names are the elements of
// the directory's path.
func reaches(pattern, names []string) bool {
	for i, name := range names {
		switch {
		case i >= len(pattern):
			return false
		case strings.Contains(pattern[i], "**"):
			return true
		case !strings.ContainsAny(pattern[i], `*?[\`) && pattern[i] != name:
			return false
		}
	}
	return len(pattern) > len(names)
}
