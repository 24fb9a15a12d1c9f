package internal_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestPackagesHaveTheirPlace checks that a newcomer finds each package: it is in one of the
// tables of README.md, and in the documentation of the package in whose directory it is.
func TestPackagesHaveTheirPlace(t *testing.T) {
	t.Parallel()
	tables := ""
	for line := range strings.Lines(architecture(t)) {
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

// architecture returns README.md of this directory.
func architecture(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	must.Do(t, err)
	return string(text)
}

// TestRowsNameFiles checks that the files in "Where to add what" exist, and that each change
// begins in one place. Paths begin in the repository, in internal or in internal/cloud, or
// beside a file or directory that the row named before.
func TestRowsNameFiles(t *testing.T) {
	t.Parallel()
	_, rows, ok := strings.Cut(architecture(t), "\n## Where to add what\n")
	if !ok {
		t.Fatal("README.md has no section Where to add what")
	}
	quoted, isFile := regexp.MustCompile("`([^` ]+)`"), regexp.MustCompile(`\.(go|py|md|txt|in)$`)
	checked := 0
	for row := range strings.Lines(rows) {
		if cells := strings.Split(row, "|"); len(cells) > 3 && strings.Count(cells[2], "`") > 2 {
			t.Errorf("a change begins in one place, not in several: %s", row)
		}
		places := []string{"..", ".", "cloud"}
		for _, match := range quoted.FindAllStringSubmatch(row, -1) {
			var found []string
			for _, place := range places {
				names, err := filepath.Glob(filepath.Join(place, match[1]))
				if err != nil {
					t.Fatalf("the path %s in README.md: %v", match[1], err)
				}
				found = append(found, names...)
			}
			if isFile.MatchString(match[1]) || strings.HasPrefix(match[1], "cloud/") {
				if checked++; len(found) == 0 {
					t.Errorf("there is no %s: %s", match[1], row)
				}
			}
			for _, name := range found {
				places = append(places, name, filepath.Dir(name))
			}
		}
	}
	if checked < 250 {
		t.Errorf("%d files were found in the rows, want at least 250", checked)
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
