package pyenv

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

var entryForm = regexp.MustCompile(`(?m)^([\w.-]+)==(\S+?)(?: ; (.*?))? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)`)

// versions returns the versions of the packages in a list for a minor version of Python 3, keyed by
// name. It fails the test if the list has two versions of one package.
func (l list) versions(t *testing.T, minor int) map[string]string {
	t.Helper()
	versions := map[string]string{}
	for _, entry := range entryForm.FindAllStringSubmatch(string(l), -1) {
		name := strings.ReplaceAll(entry[1], "_", "-")
		if !applies(entry[3], minor) {
			continue
		}
		if other, twice := versions[name]; twice {
			t.Errorf("Python 3.%d: %s is both %s and %s", minor, name, other, entry[2])
		}
		versions[name] = entry[2]
	}
	return versions
}

// TestRequirements checks that every Python version gets every wanted package
// exactly once, with hashes.
func TestRequirements(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]list{"requirements.txt": short, "full.txt": full} {
		first, last := l.minors()
		if first != oldest {
			t.Errorf("%s begins at Python 3.%d, the oldest served is 3.%d", name, first, oldest)
		}
		got, want := len(entryForm.FindAllString(string(l), -1)), len(regexp.MustCompile(`(?m)^[\w.-]+==`).FindAllString(string(l), -1))
		if got != want {
			t.Errorf("%s: %d of %d entries are of the expected form", name, got, want)
		}
		for minor := first; minor <= last; minor++ {
			versions := l.versions(t, minor)
			for _, wanted := range []string{"ipython", "matplotlib", "numpy", "pandas", "pillow", "pip", "requests"} {
				if versions[wanted] == "" {
					t.Errorf("%s, Python 3.%d: no %s", name, minor, wanted)
				}
			}
			if got := len(l.pins(minor)); got != len(versions) {
				t.Errorf("%s: %d packages for Python 3.%d, want %d", name, got, minor, len(versions))
			}
		}
	}
}

func TestApplies(t *testing.T) {
	t.Parallel()
	tests := []struct {
		marker string
		minors [3]bool // for Python 3.9, 3.10 and 3.13
	}{
		{``, [3]bool{true, true, true}},
		{`python_version == "3.9"`, [3]bool{true, false, false}},
		{`python_version >= "3.10"`, [3]bool{false, true, true}},
		{`python_version <= "3.10"`, [3]bool{true, true, false}},
		{`python_version >= "3.10" and python_version <= "3.12"`, [3]bool{false, true, false}},
	}
	for _, test := range tests {
		for i, minor := range []int{9, 10, 13} {
			if got := applies(test.marker, minor); got != test.minors[i] {
				t.Errorf("applies(%q, %d) = %v, want %v", test.marker, minor, got, test.minors[i])
			}
		}
	}
}

func TestTail(t *testing.T) {
	t.Parallel()
	var kept tail
	if got := kept.suffix(); got != "" {
		t.Errorf("suffix of nothing = %q, want nothing", got)
	}
	for range 1000 {
		kept.Write([]byte("https://user:pa55@host/\n"))
	}
	if got := kept.suffix(); strings.Contains(got, "pa55") {
		t.Errorf("suffix = %q", got)
	}
	kept.Write([]byte("fatal: https://user:pa55@host/x and http://token@host\r\nlast"))
	got := kept.suffix()
	if len(got) > 2*tailSize || strings.Contains(got, "pa55") || !strings.HasSuffix(got, "; fatal: https://host/x and http://host; last") {
		t.Errorf("suffix = %d bytes, %q", len(got), got)
	}
	kept.Write([]byte("no end: https://user:pa55" + strings.Repeat("5", 2*tailSize) + "@host"))
	if got := kept.suffix(); got != "" {
		t.Errorf("suffix of the end of one long line = %q, want nothing", got)
	}
}

func TestLineWriter(t *testing.T) {
	t.Parallel()
	var lines []string
	w := lineWriter{line: func(line string) { lines = append(lines, line) }}
	w.Write([]byte("one\ntw"))
	w.Write([]byte("o\n" + strings.Repeat("x", 2*maxLine)))
	w.Write([]byte("yz\n"))
	w.Write([]byte("\nlast\nend"))
	want := []string{"one", "two", strings.Repeat("x", maxLine), "", "last"}
	if strings.Join(lines, "|") != strings.Join(want, "|") {
		t.Errorf("%d lines, want %d", len(lines), len(want))
	}
}

// TestAdvice checks that the driver's advice about a missing module names the packages that Ensure
// installs.
func TestAdvice(t *testing.T) {
	t.Parallel()
	driver, err := os.ReadFile(filepath.Join("..", "kernel", "python", "_e2bctl_kernel", "errors.py"))
	must.Do(t, err)
	var pairs []string
	for _, module := range modules {
		pairs = append(pairs, fmt.Sprintf("%q: %q", module.name, cmp.Or(module.distribution, strings.ToLower(module.name))))
	}
	if want := "PREPARED = {" + strings.Join(pairs, ", ") + "}\n"; !strings.Contains(string(driver), want) {
		t.Errorf("errors.py: got another list, want %s", want)
	}
	for item := range strings.SplitSeq(strings.ReplaceAll(service, "\n", " "), ", ") {
		name, _, _ := strings.Cut(item, " ")
		if !strings.Contains(string(driver), fmt.Sprintf(": %q", name)) {
			t.Errorf("errors.py has no module of %s, want one in FULL", name)
		}
	}
}
