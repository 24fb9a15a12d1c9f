package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// project makes a project with two files of tests.
func project(t *testing.T, double string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"double.py":           "def double(n): return " + double + "\n",
		"tests/test_two.py":   "import double, unittest\nclass T(unittest.TestCase):\n  def test(self): self.assertEqual(double.double(2), 4)\n",
		"tests/test_three.py": "import double, unittest\nclass T(unittest.TestCase):\n  def test(self): self.assertEqual(double.double(3), 6)\n",
	} {
		path := filepath.Join(dir, name)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Do(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return dir
}

func TestPrepared(t *testing.T) {
	sandboxtest.New(t, local.WithWarm(0)).Setenv(t)
	var shown, log strings.Builder
	if err := prepared(t.Context(), &shown, &log, false, project(t, "n + n")); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	for _, name := range []string{"two", "three"} {
		if !regexp.MustCompile(`(?m)^ok      tests/test_` + name + `\.py \([0-9.]+m?s\)$`).MatchString(shown.String()) {
			t.Errorf("it showed %q", shown.String())
		}
	}
	if !strings.Contains(log.String(), "RUN python3 -m compileall") {
		t.Errorf("the log is %q", log.String())
	}
}

func TestPreparedFails(t *testing.T) {
	sandboxtest.New(t, local.WithWarm(0)).Setenv(t)
	var shown, log strings.Builder
	err := prepared(t.Context(), &shown, &log, true, project(t, "n * n"))
	if err == nil || err.Error() != "1 of 2 failed" || !strings.Contains(shown.String(), "FAILED  tests/test_three.py") || !strings.Contains(shown.String(), "9 != 6") {
		t.Errorf("got %v\n%s", err, shown.String())
	}
	err = prepared(t.Context(), &shown, &log, false, project(t, "(")) // the project is not valid Python
	if err == nil || !strings.Contains(err.Error(), "step 3 (RUN python3 -m compileall -q .)") {
		t.Errorf("a project that is no Python: got %v", err)
	}
	for _, dir := range []string{"", t.TempDir()} {
		if err := prepared(t.Context(), &shown, &log, false, dir); err == nil {
			t.Errorf("the project %q: got no error", dir)
		}
	}
}
