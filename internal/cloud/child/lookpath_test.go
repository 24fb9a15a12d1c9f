//go:build linux

package child

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

func TestLookPath(t *testing.T) {
	t.Parallel()
	first, second := t.TempDir(), t.TempDir()
	program := filepath.Join(second, "program")
	err := errors.Join(os.Mkdir(filepath.Join(first, "program"), 0o755), os.WriteFile(filepath.Join(first, "text"), nil, 0o644), os.WriteFile(program, nil, 0o755))
	must.Do(t, err)
	here, err := os.Getwd()
	must.Do(t, err)
	relative, err := filepath.Rel(here, second) // a program in it is not found, as the shell's directory may change
	must.Do(t, err)
	environ := []string{"HOME=/", "PATH=" + first + ":" + relative + ":" + second}
	for name, want := range map[string]string{"program": program, "text": "", "missing": "", "": "", "/a/path": "/a/path", "./program": "./program"} {
		if got := LookPath(name, environ); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
	if got := LookPath("program", nil); got != "" {
		t.Errorf("without a PATH: got %q, want none", got)
	}
}
