package internal_test

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPackagesHaveTheirPlace checks that a newcomer finds each package: it is in one of the
// tables of README.md, and in the documentation of the package in whose directory it is.
func TestPackagesHaveTheirPlace(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	tables := ""
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "|") {
			tables += line
		}
	}
	docs := readSources(t).docs()
	for name := range imports {
		if name == "internal" || strings.HasPrefix(name, "examples/") || strings.HasPrefix(name, "internal/gen/") {
			continue // the test's own, the packages in examples/README.md, and generated ones
		}
		short := strings.TrimPrefix(name, "internal/")
		names := []string{name, short, strings.TrimPrefix(short, "cloud/")}
		if !slices.ContainsFunc(names, func(name string) bool { return strings.Contains(tables, "`"+name+"`") }) {
			t.Errorf("no table of README.md has %s: give it a row, as one of %q", name, names)
		}
		folder, base := docs[path.Dir(name)], path.Base(name)
		if of, isTest := strings.CutSuffix(base, "test"); isTest && strings.HasPrefix(path.Base(path.Dir(name)), of) {
			continue // packages for tests of the folder, which their names show
		}
		if folder != "" && !regexp.MustCompile(`\b`+base+`\b`).MatchString(folder) {
			t.Errorf("the documentation of %s does not name its package %s", path.Dir(name), base)
		}
	}
}

// docs returns the documentation of the packages by their directories.
func (s *sources) docs() map[string]string {
	docs := map[string]string{}
	for _, name := range s.names(false, "") {
		file := s.trees[name]
		if file.Doc != nil && strings.HasPrefix(file.Doc.Text(), "Package ") {
			docs[path.Dir(name)] += file.Doc.Text()
		}
	}
	return docs
}
