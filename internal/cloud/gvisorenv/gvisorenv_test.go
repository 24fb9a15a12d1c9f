//go:build linux

package gvisorenv

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
)

// program writes a script that is executed as a program.
func program(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must.Do(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755))
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

// TestSetup checks the arguments of the go command, with a replacement for that command. A failed
// build leaves nothing behind.
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
	if _, err := Setup(t.Context(), nil, program(t, "go", "echo '#!/bin/sh' >$GOBIN/runsc; chmod 755 $GOBIN/runsc")); err == nil || !strings.Contains(err.Error(), "not a runsc") {
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

// builds returns a go command that builds a runsc with this version. The command first runs the
// shell commands in before.
func builds(t *testing.T, version, before string) string {
	t.Helper()
	return program(t, "go", before+`
printf '#!/bin/sh\necho runsc version `+version+`\n' >$GOBIN/runsc
chmod 755 $GOBIN/runsc`)
}

// TestDamaged checks that a built runsc that no longer runs has another error than a runsc that
// does not answer in time, and that Setup builds the damaged one again.
func TestDamaged(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	built, err := Setup(t.Context(), nil, builds(t, "first", ""))
	must.Do(t, err)
	given, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Find(given, ""); errors.Is(err, ErrDamaged) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v from a caller that gave up, want %v", err, context.Canceled)
	}
	for name, damage := range map[string]func() error{
		"fails":    func() error { return os.WriteFile(built.Path, []byte("#!/bin/sh\necho broken >&2; exit 7"), 0o755) },
		"empty":    func() error { return os.Truncate(built.Path, 0) },
		"another":  func() error { return os.WriteFile(built.Path, []byte("#!/bin/sh\necho other"), 0o755) },
		"no modes": func() error { return os.Chmod(built.Path, 0o600) },
	} {
		must.Do(t, damage())
		if _, err := Find(t.Context(), ""); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "run `e2bctl local setup --engine gvisor`") || !strings.Contains(err.Error(), built.Path) {
			t.Errorf("%s: got %v, want %v with the path and what to do", name, err, ErrDamaged)
		}
		var progress strings.Builder
		if again, err := Setup(t.Context(), &progress, builds(t, name, "")); err != nil || again.Version != "runsc "+name || again.Path != built.Path {
			t.Errorf("%s: got %+v, %v, want another one at %s\n%s", name, again, err, built.Path, &progress)
		}
	}
	must.Do(t, os.WriteFile(built.Path, []byte("#!/bin/sh\necho runtime: failed to create new OS thread >&2; exit 2"), 0o755))
	if _, err := Find(t.Context(), ""); err == nil || errors.Is(err, ErrDamaged) {
		t.Errorf("got %v where there can be no more threads, want an error that is not %v", err, ErrDamaged)
	}
}

// TestTidying checks that a setup removes old unused versions, and the files of setups that were
// killed. It keeps versions in use and versions that another setup is making.
func TestTidying(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	version, err := home()
	must.Do(t, err)
	cache := filepath.Dir(version)
	const day = 24 * time.Hour
	place := func(dir string, age time.Duration) Program {
		t.Helper()
		p := Program{Path: filepath.Join(cache, dir, name), dir: filepath.Join(cache, dir)}
		then := time.Now().Add(-age)
		must.Do(t, errors.Join(os.Mkdir(p.dir, 0o755), os.WriteFile(p.Path, nil, 0o755), os.Chtimes(p.Path, then, then), os.Chtimes(p.dir, then, then)))
		return p
	}
	place("unused", 31*day)
	place("making-killed", 2*day)
	used := place("used", 31*day)
	used.NoteUse()
	own := place("own", 31*day) // as if a user named it with --runsc
	own.dir = ""
	own.NoteUse()

	pipe := filepath.Join(t.TempDir(), "pipe")
	must.Do(t, syscall.Mkfifo(pipe, 0o600))
	slow, finished := builds(t, "slow", "echo began >"+pipe+"; read line <"+pipe), make(chan error, 1)
	go func() {
		_, err := Setup(t.Context(), nil, slow)
		finished <- err
	}()
	if _, err := os.ReadFile(pipe); err != nil { // it has begun
		t.Fatal(err)
	}
	if _, err := Setup(t.Context(), nil, builds(t, "fast", "")); err != nil {
		t.Error(err)
	}
	running, err := filepath.Glob(filepath.Join(cache, "making-*"))
	if err != nil || len(running) != 1 {
		t.Errorf("got %v, %v, want the directory of the setup that is running", running, err)
	}
	must.Do(t, os.WriteFile(pipe, []byte("go on\n"), 0))
	if err := <-finished; err != nil {
		t.Errorf("the setup that was running: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(cache, "*")); err != nil || !slices.Equal(left, []string{used.dir, version}) {
		t.Errorf("left are %v, %v, want %s and %s", left, err, used.dir, version)
	}
	if p, err := Find(t.Context(), ""); err != nil || p.Version != "runsc fast" {
		t.Errorf("got %+v, %v, want what was built first", p, err)
	}
}
