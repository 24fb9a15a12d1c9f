//go:build unix

package pyenv

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// writable returns the paths below directory that users other than this one can change.
func writable(t *testing.T, directory string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(directory, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err == nil && info.Mode().Type() != fs.ModeSymlink && info.Mode().Perm()&0o022 != 0 {
			found = append(found, path+" "+info.Mode().String())
		}
		return err
	})
	must.Do(t, err)
	return found
}

// TestEnsureUnderUmask000 checks that other users cannot change any file of an environment, even if
// it was created with a permissive umask.
func TestEnsureUnderUmask000(t *testing.T) {
	cache, _ := pretend(t, `mkdir -p "$prefix/lib/packages" && touch "$prefix/lib/packages/module.py"`)
	before := syscall.Umask(0)
	defer syscall.Umask(before)
	env, err := Ensure(t.Context(), nil)
	if err != nil || env.Level != Venv {
		t.Fatalf("Ensure = %+v, %v; want the environment", env, err)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(filepath.Dir(env.Python)), "lib/packages/module.py")); err != nil {
		t.Error(err)
	}
	if found := writable(t, cache); len(found) > 0 {
		t.Errorf("others can write to %q, want none", found)
	}
	want := fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		want = 0o755 // the ids of root's sandboxes read it
	}
	for range 2 { // when it is created, and when it exists and is open
		info, err := os.Stat(filepath.Join(cache, "e2bctl", "python"))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("the cache has mode %v, %v; want %v", info.Mode(), err, want)
		}
		must.Do(t, os.Chmod(filepath.Join(cache, "e2bctl", "python"), 0o755))
		if _, err := Ensure(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
}

// openEnvironment creates an environment that other users can read, but not change. It also returns
// the directory of the cache, and the file that counts the runs of pip.
func openEnvironment(t *testing.T) (env *Env, cache, runs string) {
	t.Helper()
	_, runs = pretend(t, `mkdir -p "$prefix/lib/packages" && touch "$prefix/lib/packages/module.py" && ln -sfn python3 "$prefix/bin/link"`)
	home, err := os.MkdirTemp("/tmp", "e2bctl-test-") //nolint:usetesting // others may be unable to reach t.TempDir
	must.Do(t, err)
	t.Cleanup(func() {
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("XDG_CACHE_HOME", home)
	env, err = Ensure(t.Context(), nil)
	if err != nil || env.Level != Venv {
		t.Fatalf("Ensure = %+v, %v; want the environment", env, err)
	}
	cache = filepath.Join(home, "e2bctl", "python")
	for _, directory := range []string{home, filepath.Dir(cache), cache} {
		must.Do(t, os.Chmod(directory, 0o755))
	}
	if found, err := Find(t.Context()); err != nil || found.Level != Venv {
		t.Fatalf("Find = %+v, %v; want the environment that others can only read", found, err)
	}
	return env, cache, runs
}

func TestSharedEnvironmentIsNotRun(t *testing.T) {
	chmod := func(mode fs.FileMode) func(string) error {
		return func(path string) error { return os.Chmod(path, mode) }
	}
	tests := []struct {
		name   string
		path   string // path relative to the environment
		change func(path string) error
		root   bool // only root can create this file
	}{
		{"the environment", ".", chmod(0o777), false},
		{"a group's", ".", chmod(0o775), false},
		{"a file", "lib/packages/module.py", chmod(0o666), false},
		{"its cache", "..", chmod(0o777), false},
		{"another user's file", "lib/packages/module.py", func(path string) error { return os.Lchown(path, 12345, 12345) }, true},
		{"another user's link", "bin/link", func(path string) error { return os.Lchown(path, 12345, 12345) }, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.root && os.Geteuid() != 0 {
				t.Skip("only root can give a file to another user")
			}
			made, cache, runs := openEnvironment(t)
			// A program that another user has put there must not run.
			directory, trap := filepath.Dir(filepath.Dir(made.Python)), filepath.Join(t.TempDir(), "trap")
			script, err := os.ReadFile(made.Python)
			must.Do(t, err)
			changed := strings.Replace(string(script), "\n", "\ntouch "+trap+"\n", 1)
			must.Do(t, os.WriteFile(made.Python, []byte(changed), 0o755))
			must.Do(t, test.change(filepath.Join(directory, test.path)))
			found, err := Find(t.Context())
			if err != nil || found.Level == Venv || !strings.Contains(found.Note, "e2bctl local setup") {
				t.Errorf("Find = %+v, %v; want another Python and a note", found, err)
			}
			var progress strings.Builder
			again, err := Ensure(t.Context(), &progress)
			if err != nil || again.Level != Venv {
				t.Errorf("Ensure = %+v, %v; want a new environment", again, err)
			}
			if !strings.Contains(progress.String(), "not used") {
				t.Errorf("progress = %q; want it to say why", progress.String())
			}
			if _, err := os.Stat(trap); err == nil {
				t.Error("the environment that others could change was run")
			}
			if content, _ := os.ReadFile(runs); string(content) != "run\nrun\n" {
				t.Errorf("pip ran %q, want twice", content)
			}
			if found := writable(t, cache); len(found) > 0 {
				t.Errorf("others can write to %q, want none", found)
			}
		})
	}
}

// TestFilesOfOthers checks which files are this user's alone, and which directories others cannot reach.
func TestFilesOfOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	must.Do(t, os.WriteFile(path, nil, 0o600))
	for mode, own := range map[fs.FileMode]bool{0o600: true, 0o755: true, 0o644: true, 0o620: false, 0o602: false, 0o666: false, 0o777: false} {
		must.Do(t, os.Chmod(path, mode))
		if err := checkOwn(path); (err == nil) != own || err != nil && !strings.Contains(err.Error(), "others can write to "+path) {
			t.Errorf("mode %v: got error %v, want it to be this user's: %v", mode, err, own)
		}
	}
	must.Do(t, os.Symlink("file", filepath.Join(dir, "link")))
	must.Do(t, checkOwn(filepath.Join(dir, "link")))
	must.Is(t, checkOwn(filepath.Join(dir, "none")), fs.ErrNotExist)
	must.Is(t, checkUnshared(filepath.Join(dir, "none")), fs.ErrNotExist)
	if unreachable("/none/below") {
		t.Error("a directory that is not there counts as closed")
	}
	if os.Geteuid() == 0 {
		must.Do(t, os.Chmod(path, 0o600))
		must.Do(t, os.Chown(path, 12345, -1))
		if err := checkOwn(path); err == nil || !strings.Contains(err.Error(), "belongs to user 12345") {
			t.Errorf("another user's: got error %v", err)
		}
	}
	below := filepath.Join(dir, "a", "b")
	must.Do(t, os.MkdirAll(below, 0o755))
	must.Do(t, os.WriteFile(filepath.Join(below, "file"), nil, 0o600))
	must.Do(t, os.Chmod(filepath.Join(below, "file"), 0o666))
	must.Do(t, os.Chmod(filepath.Join(dir, "a"), 0o755))
	must.Do(t, os.Chmod(dir, 0o700))
	must.Do(t, checkUnshared(below)) // nobody else reaches the file
	for mode, closed := range map[fs.FileMode]bool{0o700: true, 0o744: true, 0o710: false, 0o701: false, 0o755: false} {
		must.Do(t, os.Chmod(filepath.Join(dir, "a"), mode))
		must.Do(t, os.Chmod(dir, 0o755))
		must.Do(t, os.Chmod(filepath.Dir(dir), 0o755))
		if got := unreachable(below); got != closed && !unreachable(filepath.Dir(filepath.Dir(dir))) {
			t.Errorf("mode %v above: it cannot be reached: %v, want %v", mode, got, closed)
		}
	}
	if os.Geteuid() == 0 {
		must.Do(t, os.Chmod(filepath.Join(dir, "a"), 0o700))
		must.Do(t, os.Chown(filepath.Join(dir, "a"), 12345, -1))
		if unreachable(below) && !unreachable(filepath.Dir(filepath.Dir(dir))) {
			t.Error("a directory that another user can enter counts as closed")
		}
	}
}

// TestCloseDirectory checks which permissions of a directory are removed, and that environments that others could
// change count as incomplete from then on.
func TestCloseDirectory(t *testing.T) {
	t.Parallel()
	for before, tt := range map[fs.FileMode]struct {
		closed, after fs.FileMode
		incomplete    bool
	}{
		0o700: {0o077, 0o700, false}, 0o755: {0o022, 0o755, false}, 0o755 | fs.ModeSticky: {0o077, 0o700, false}, 0o775: {0o022, 0o755, true}, 0o777: {0o077, 0o700, true},
	} {
		cache := filepath.Join(t.TempDir(), "[", "python") // no pattern
		must.Do(t, os.MkdirAll(filepath.Join(cache, "environment"), 0o755))
		name := filepath.Join(cache, "environment", marker)
		must.Do(t, os.WriteFile(name, nil, 0o644))
		must.Do(t, os.Chmod(cache, before.Perm()))
		var said strings.Builder
		must.Do(t, closeDirectory(cache, cache, tt.closed, newReporter(&said)))
		info, err := os.Stat(cache)
		if err != nil || info.Mode().Perm() != tt.after {
			t.Errorf("%v without %v: got %v and error %v, want %v", before.Perm(), tt.closed, info.Mode(), err, tt.after)
		}
		if _, err := os.Stat(name); (err != nil) != tt.incomplete || strings.Contains(said.String(), "others can write to "+cache) != tt.incomplete {
			t.Errorf("%v without %v: the environment: %v, said: %q, want it to be incomplete: %v", before.Perm(), tt.closed, err, said.String(), tt.incomplete)
		}
	}
	must.Is(t, closeDirectory("", "/none", 0o077, newReporter(nil)), fs.ErrNotExist)
	file := filepath.Join(t.TempDir(), "file")
	must.Do(t, os.WriteFile(file, nil, 0o600))
	if err := makeCache(filepath.Join(file, "below"), newReporter(nil)); err == nil || !strings.Contains(err.Error(), "python: make the cache directory: ") {
		t.Errorf("a cache that cannot be made: got error %v", err)
	}
}
