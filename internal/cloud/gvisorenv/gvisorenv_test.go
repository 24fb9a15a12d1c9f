//go:build linux

package gvisorenv

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// program writes a script that is executed as a program.
func program(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFind(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	if _, err := Find(t.Context(), ""); !errors.Is(err, ErrNotSetUp) || !strings.Contains(err.Error(), "setup --engine gvisor") {
		t.Errorf("got %v, want %v and what to do", err, ErrNotSetUp)
	}
	good := program(t, "runsc", "echo runsc version release-1.0; echo spec: 1.1")
	if p, err := Find(t.Context(), good); err != nil || p.Version != "runsc release-1.0" || p.Path != good {
		t.Errorf("got %+v, %v, want the version and the path", p, err)
	}
	t.Chdir(filepath.Dir(good))
	if p, err := Find(t.Context(), "./runsc"); err != nil || p.Path != good {
		t.Errorf("got %+v, %v, want the absolute path %s", p, err, good)
	}
	for name, test := range map[string]struct{ path, want string }{
		"missing":     {filepath.Join(t.TempDir(), "none"), "no such file"},
		"a directory": {t.TempDir(), "not a regular file"},
		"another":     {program(t, "other", "echo other 1.0"), `says "other 1.0"`},
		"fails":       {program(t, "fails", "exit 7"), "exit status 7"},
	} {
		_, err := Find(t.Context(), test.path)
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), test.path) {
			t.Errorf("%s: got %v, want %q and the path", name, err, test.want)
		}
	}
}

// TestSetup builds with a go command that is none: what matters is what it is asked for, and
// that what fails leaves nothing.
func TestSetup(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	if _, err := Setup(t.Context(), nil, filepath.Join(cache, "none")); err == nil || !strings.Contains(err.Error(), "install Go") || !strings.Contains(err.Error(), "--runsc") {
		t.Errorf("without go: got %v, want what to do", err)
	}
	_, err := Setup(t.Context(), nil, program(t, "go", "echo proxy is away >&2; exit 1"))
	if err == nil || !strings.Contains(err.Error(), "proxy is away") || !strings.Contains(err.Error(), source) {
		t.Errorf("got %v, want what go said, and of what", err)
	}
	if _, err := Setup(t.Context(), nil, program(t, "go", "echo '#!/bin/sh' >$GOBIN/runsc; chmod 755 $GOBIN/runsc")); err == nil || !strings.Contains(err.Error(), "no runsc") {
		t.Errorf("got %v, want that another program was built", err)
	}
	if left, err := filepath.Glob(filepath.Join(cache, "e2bctl", "gvisor", "*")); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v, want nothing", left, err)
	}
	builds := program(t, "go", `test "$1 $4 $CGO_ENABLED" = "install `+source+` 0" || exit 9
printf '#!/bin/sh\necho runsc version made\n' >$GOBIN/runsc
chmod 755 $GOBIN/runsc`)
	p, err := Setup(t.Context(), nil, builds)
	if err != nil || p.Version != "runsc made" {
		t.Fatalf("got %+v, %v, want the version of what was built", p, err)
	}
	if again, err := Setup(t.Context(), nil, filepath.Join(cache, "none")); err != nil || again != p {
		t.Errorf("again: got %+v, %v, want %+v without a build", again, err, p)
	}
}
