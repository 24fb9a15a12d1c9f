package pyenv

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/e2bctl/e2bctl/internal/cloud/hostprogram"
	"github.com/e2bctl/e2bctl/internal/shell"
)

// requirementFiles copies requirements files, and makes the paths in the copies absolute. This is
// necessary because pip does not run in the caller's directory, and resolves most paths in these
// files relative to the directory in which it runs.
type requirementFiles struct {
	dir    string            // directory for the copies
	copies map[string]string // keyed by the absolute paths of the files

	options   *regexp.Regexp // options whose values are files
	argument  *regexp.Regexp // a requirement: a part that may be a path, with extras and marker
	trailing  *regexp.Regexp // comment at the end of a line
	archives  *regexp.Regexp // names of files that are packages
	reference *regexp.Regexp // reference to a variable
}

// newRequirementFiles returns a requirementFiles that copies to dir. It compiles the regular
// expressions here, because only a setup needs them.
func newRequirementFiles(dir string) *requirementFiles {
	return &requirementFiles{
		dir: dir, copies: map[string]string{},
		options:   regexp.MustCompile(`(^|\s)(--(?:requirement|constraint|editable|find-links|index-url|pypi-url|extra-index-url)(?:=|\s+)|-[rcefi]\s*)("[^"]*"|'[^']*'|[^\s"']\S*)`),
		argument:  regexp.MustCompile(`^(\s*)(.*?)(\s*(?:\[[^\]]*\])?\s*(?:;.*)?)$`),
		trailing:  regexp.MustCompile(`(?:^|\s+)#.*$`),
		archives:  regexp.MustCompile(`(?i)\.(?:whl|zip|tar|tar\.gz|tgz|tar\.bz2|tbz|tar\.xz|txz|tlz|tar\.lz|tar\.lzma)$`),
		reference: regexp.MustCompile(`\$\{[A-Z0-9_]+\}`),
	}
}

// copy copies the file called name, and the files that this file includes. It makes the paths in
// the copies absolute, and keeps the line numbers. It returns the path of the copy of name.
func (r *requirementFiles) copy(name string) (string, error) {
	if copied, done := r.copies[name]; done {
		return copied, nil
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("python: read the list of packages: %w", err)
	}
	copied := filepath.Join(r.dir, fmt.Sprintf("packages-%d.txt", len(r.copies)+1))
	r.copies[name] = copied
	var text, logical strings.Builder
	joined := 0
	for line := range strings.Lines(string(content)) {
		bare := strings.TrimRight(line, "\r\n")
		if strings.HasSuffix(bare, `\`) && !isComment(bare) {
			logical.WriteString(strings.Trim(bare, `\`))
			joined++
			continue
		}
		if isComment(bare) { // a comment ends a continued line
			bare = " " + bare
		}
		logical.WriteString(bare)
		text.WriteString(r.line(logical.String(), filepath.Dir(name)) + strings.Repeat("\n", joined+1))
		logical.Reset()
		joined = 0
	}
	text.WriteString(r.line(logical.String(), filepath.Dir(name)) + "\n")
	if err := os.WriteFile(copied, []byte(text.String()), 0o600); err != nil {
		return "", fmt.Errorf("python: copy the list of packages: %w", err)
	}
	return copied, nil
}

// renamedError is an error of pip. Its text has the names of the original files instead of the
// names of the copies.
type renamedError struct {
	error

	names *strings.Replacer
}

func (e *renamedError) Error() string { return e.names.Replace(e.error.Error()) }
func (e *renamedError) Unwrap() error { return e.error }

// originals returns a replacer for pip's messages. It replaces the paths of the copies by those
// of the original files.
func (r *requirementFiles) originals() *strings.Replacer {
	var pairs []string
	for name, copied := range r.copies {
		pairs = append(pairs, copied, name)
	}
	return strings.NewReplacer(pairs...)
}

// line returns text, a logical line of a requirements file in dir, with absolute paths.
func (r *requirementFiles) line(text, dir string) string {
	text = r.trailing.ReplaceAllString(text, "")
	begin := len(text)
	if strings.HasPrefix(text, "-") {
		begin = 0
	} else if i := strings.Index(text, " -"); i >= 0 {
		begin = i
	}
	return r.requirement(text[:begin]) + r.options.ReplaceAllStringFunc(text[begin:], func(option string) string {
		part := r.options.FindStringSubmatch(option)
		value := part[3]
		if value[0] == '"' || value[0] == '\'' {
			value = value[1 : len(value)-1]
		}
		resolved := r.option(strings.TrimRight(part[2], "= \t"), r.expand(value), dir)
		if resolved == r.expand(value) { // values of variables may be secret
			return option
		}
		return part[1] + part[2] + shell.Quote(resolved)
	})
}

// option returns the value of an option, with absolute paths. value is the original value, from a
// requirements file in dir.
func (r *requirementFiles) option(name, value, dir string) string {
	resolved := hostprogram.Resolve(value)
	switch name {
	case "-r", "-c", "--requirement", "--constraint":
		if hostprogram.IsURL(value) {
			return value
		}
		included := value
		if !filepath.IsAbs(included) {
			included = filepath.Join(dir, included)
		}
		if copied, err := r.copy(included); err == nil {
			return copied
		}
		return included // pip reports the problem
	case "-f", "--find-links":
		if beside := filepath.Join(dir, value); resolved != value && exists(beside) {
			return beside
		}
	case "-e", "--editable":
		if path, extras, found := strings.Cut(value, "["); found && !hostprogram.IsURL(value) {
			return hostprogram.Resolve(path) + "[" + extras
		}
	}
	return resolved
}

// requirement returns text. If text names a path, the path in the result is absolute. text is a
// line of a requirements file without its options.
func (r *requirementFiles) requirement(text string) string {
	part := r.argument.FindStringSubmatch(text)
	path := r.expand(part[2])
	if name, url, found := strings.Cut(path, "@"); found && !looksLikePath(name) && hostprogram.IsURL(strings.TrimSpace(url)) {
		if resolved := hostprogram.Resolve(strings.TrimSpace(url)); resolved != strings.TrimSpace(url) {
			return part[1] + name + "@ " + resolved + part[3]
		}
		return text
	}
	resolved := hostprogram.Resolve(path)
	isPath := looksLikePath(path) || r.archives.MatchString(path) && exists(resolved)
	if resolved == path || !isPath {
		return text
	}
	return part[1] + resolved + part[3]
}

// looksLikePath reports whether pip treats text, a requirement, as a path even if no file exists at
// this path.
func looksLikePath(text string) bool {
	return strings.HasPrefix(text, ".") || strings.Contains(filepath.ToSlash(text), "/")
}

// expand replaces references to environment variables by their values, as pip does.
func (r *requirementFiles) expand(text string) string {
	return r.reference.ReplaceAllStringFunc(text, func(reference string) string {
		if value := os.Getenv(reference[2 : len(reference)-1]); value != "" {
			return value
		}
		return reference
	})
}

// isComment reports whether a line consists only of a comment.
func isComment(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "#") }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
