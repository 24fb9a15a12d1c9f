package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

func TestBuild(t *testing.T) {
	sandboxtest.New(t, local.WithWarm(0)).Setenv(t)
	out := t.TempDir()
	var shown strings.Builder
	if err := build(t.Context(), &shown, false, "testdata/project", out); err != nil {
		t.Fatalf("%v\n%s", err, shown.String())
	}
	if !strings.Contains(shown.String(), "Ran 1 test") {
		t.Errorf("it showed %q", shown.String())
	}
	// The downloaded file is a program for this machine.
	program := exec.CommandContext(t.Context(), "python3", filepath.Join(out, "app.pyz"))
	program.Stdin = strings.NewReader("to be or not to be")
	if got, err := program.CombinedOutput(); err != nil || !strings.HasPrefix(string(got), "2 to\n2 be\n") {
		t.Errorf("it says %q, %v", got, err)
	}
}

// TestBuildFails checks that a project whose tests fail is not built, and that the reason is
// shown.
func TestBuildFails(t *testing.T) {
	sandboxtest.New(t, local.WithWarm(0)).Setenv(t)
	project, out := t.TempDir(), t.TempDir()
	must.Do(t, os.CopyFS(project, os.DirFS("testdata/project")))
	must.Do(t, os.WriteFile(filepath.Join(project, "src", "words.py"), []byte("def count(text): return []\n"), 0o600))
	var shown strings.Builder
	err := build(t.Context(), &shown, true, project, out)
	if failed, ok := errors.AsType[*sandbox.ExitError](err); !ok || failed.Result.ExitCode != 1 || !strings.Contains(shown.String(), "AssertionError") {
		t.Errorf("%v\n%s", err, shown.String())
	}
	if left, err := os.ReadDir(out); err != nil || len(left) > 0 {
		t.Errorf("something was downloaded: %v, %v", left, err)
	}
	for missing, project := range map[string]string{"which project?": "", "has no src/__main__.py": t.TempDir()} {
		if err := build(t.Context(), &shown, true, project, out); err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("project %q: got %v, want %q", project, err, missing)
		}
	}
}
