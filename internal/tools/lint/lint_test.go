package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	seeded   = regexp.MustCompile(`want:([\w,]+)`)
	reported = regexp.MustCompile(`^([^:]+:\d+):\d+: (?:(\w+): )?.* \((\w+)\)$`)
)

// Lines of testdata/seeds name the linters that find something there, or the
// analyzer, where the linter has many. Nothing else may be found.
func TestSeeds(t *testing.T) {
	tool := filepath.Join(t.TempDir(), "lint")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", tool, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	vet := exec.CommandContext(t.Context(), "go", "vet", "-vettool="+tool, "-every-package", "./...")
	vet.Dir = filepath.Join("testdata", "seeds")
	out, err := vet.CombinedOutput()
	if failed := (*exec.ExitError)(nil); !errors.As(err, &failed) {
		t.Fatalf("go vet returned %v, want that it fails\n%s", err, out)
	}
	want := wants(t, vet.Dir)
	got := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "# ") {
			continue
		}
		// go vet remembers findings from another checkout, and prints them with that one's path.
		if _, below, elsewhere := strings.Cut(line, filepath.Join("testdata", "seeds")+"/"); elsewhere {
			line = below
		}
		match := reported.FindStringSubmatch(strings.TrimPrefix(line, "./"))
		if match == nil {
			t.Errorf("go vet printed %q, want a finding", line)
			continue
		}
		name := match[3]
		if name == "govet" || name == "staticcheck" {
			name = match[2]
		}
		got[match[1]] = append(got[match[1]], name)
	}
	for line, names := range want {
		found := slices.Sorted(slices.Values(got[line]))
		if !slices.Equal(slices.Compact(found), names) {
			t.Errorf("%s: found %q, want %q", line, found, names)
		}
		delete(got, line)
	}
	for line, names := range got {
		t.Errorf("%s: found %q, want nothing", line, names)
	}
}

// wants reads the expected findings from the files below a directory, by file and line.
func wants(t *testing.T, dir string) map[string][]string {
	t.Helper()
	want := map[string][]string{}
	known := map[string]bool{"nolintlint": true}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		lines := bufio.NewScanner(file)
		for number := 1; lines.Scan(); number++ {
			if match := seeded.FindStringSubmatch(lines.Text()); match != nil {
				names := strings.Split(match[1], ",")
				slices.Sort(names)
				want[fmt.Sprintf("%s:%d", name, number)] = names
				for _, n := range names {
					known[n] = true
				}
			}
		}
		return lines.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range linters {
		one := func(a string) bool { return known[a] }
		names := []string{l.name}
		for _, a := range l.analyzers {
			names = append(names, a.Name)
		}
		if !slices.ContainsFunc(names, one) {
			t.Errorf("testdata/seeds has nothing for %s to find", l.name)
		}
	}
	return want
}
