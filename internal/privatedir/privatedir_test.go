//go:build linux

package privatedir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

func TestMake(t *testing.T) {
	tests := []struct {
		name string
		// prepare gets the three bases, and changes what is there.
		prepare func(t *testing.T, home, runtime, temporary string)
		want    string // the path below the directory of the test
		fails   string // in the error
	}{
		{"home", func(*testing.T, string, string, string) {}, "home/.cache/e2bctl/name", ""},
		{"no home", func(t *testing.T, home, _, _ string) { block(t, home) }, "runtime/e2bctl/name", ""},
		{"no variable HOME", func(t *testing.T, _, _, _ string) { t.Setenv("HOME", "") }, "runtime/e2bctl/name", ""},
		{"a relative home", func(t *testing.T, _, _, _ string) { t.Setenv("HOME", "home") }, "runtime/e2bctl/name", ""},
		{"no home and another's runtime directory", func(t *testing.T, home, runtime, _ string) {
			block(t, home)
			mode(t, runtime, 0o777)
		}, "temporary/e2bctl-*/name", ""},
		{"no home and no runtime directory", func(t *testing.T, home, _, temporary string) {
			block(t, home)
			t.Setenv("XDG_RUNTIME_DIR", "")
			mode(t, temporary, 0o1777)
		}, "temporary/e2bctl-*/name", ""},
		{"a temporary directory of before", func(t *testing.T, home, runtime, temporary string) {
			block(t, home)
			block(t, runtime)
			t.Setenv("TMPDIR", temporary)
			_, err := Temporary.find()
			must.Do(t, err)
		}, "temporary/e2bctl-*/name", ""},
		{"no variable for the runtime directory", func(t *testing.T, home, _, temporary string) {
			block(t, home)
			t.Setenv("XDG_RUNTIME_DIR", "")
			block(t, temporary)
		}, "", "; XDG_RUNTIME_DIR: it is not set; "},
		{"another's in the temporary directory", func(t *testing.T, home, runtime, temporary string) {
			block(t, home)
			block(t, runtime)
			t.Setenv("TMPDIR", temporary)
			base, err := Temporary.find()
			must.Do(t, err)
			mode(t, base, 0o777)
		}, "", "must be a directory of this user that no other can write to"},
		{"nothing", func(t *testing.T, home, runtime, temporary string) {
			block(t, home)
			block(t, runtime)
			block(t, temporary)
		}, "", "the cache directory: mkdir "},
		{"what to do", func(t *testing.T, home, runtime, temporary string) {
			block(t, home)
			block(t, runtime)
			block(t, temporary)
		}, "", "set XDG_CACHE_HOME or XDG_RUNTIME_DIR or TMPDIR to a directory of your own"},
		{"writable by others", func(t *testing.T, home, _, _ string) {
			dir := filepath.Join(home, ".cache", "e2bctl", "name")
			must.Do(t, os.MkdirAll(dir, 0o700))
			mode(t, dir, 0o770)
		}, "", "must be a directory of this user"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			for variable, name := range map[string]string{"HOME": "home", "XDG_RUNTIME_DIR": "runtime", "TMPDIR": "temporary"} {
				dir := filepath.Join(root, name)
				must.Do(t, os.Mkdir(dir, 0o700))
				t.Setenv(variable, dir)
			}
			t.Setenv("XDG_CACHE_HOME", "")
			test.prepare(t, filepath.Join(root, "home"), filepath.Join(root, "runtime"), filepath.Join(root, "temporary"))
			got, err := Make("name", Cache, Runtime, Temporary)
			if test.fails != "" {
				if err == nil || !strings.Contains(err.Error(), test.fails) {
					t.Errorf("got %q, %v, want the error %q", got, err, test.fails)
				}
				return
			}
			if matches, _ := filepath.Match(filepath.Join(root, test.want), got); !matches || err != nil {
				t.Errorf("got %q, %v, want %s", got, err, test.want)
			}
			if info, err := os.Stat(got); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("got %v, %v, want mode 0700", info.Mode(), err)
			}
			if left, _ := os.ReadDir(got); len(left) != 0 {
				t.Errorf("got %v in it, want nothing", left)
			}
		})
	}
}

// block makes it impossible to make anything in dir, for root as well.
func block(t *testing.T, dir string) {
	t.Helper()
	must.Do(t, os.Remove(dir))
	must.Do(t, os.WriteFile(dir, nil, 0o600))
}

func mode(t *testing.T, dir string, m os.FileMode) {
	t.Helper()
	must.Do(t, os.Chmod(dir, m))
}

// TestAdvice checks that only variables are named that help.
func TestAdvice(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home")
	must.Do(t, os.WriteFile(home, nil, 0o600))
	t.Setenv("HOME", home)
	t.Setenv("XDG_STATE_HOME", "")
	if dir, err := Make("secrets", State); err == nil || !strings.HasSuffix(err.Error(), "; set XDG_STATE_HOME to a directory of your own") {
		t.Errorf("got %q, %v, want the advice to set XDG_STATE_HOME", dir, err)
	}
}

// TestMakeLasting checks that a note says why a directory may not outlive a restart.
func TestMakeLasting(t *testing.T) {
	root := t.TempDir()
	t.Setenv("HOME", filepath.Join(root, "home"))
	t.Setenv("XDG_RUNTIME_DIR", root)
	for _, test := range []struct{ state, want, note string }{
		{filepath.Join(root, "state"), "state/e2bctl/name", ""},
		{"relative", "home/.local/state/e2bctl/name", ""},
		{"/proc/self", "e2bctl/name", " may be gone when the machine starts anew; it is used because of the state directory: "},
	} {
		t.Setenv("XDG_STATE_HOME", test.state)
		got, note, err := MakeLasting("name", State, Runtime)
		if want := filepath.Join(root, test.want); got != want || err != nil {
			t.Errorf("%s: got %q, %v, want %s", test.state, got, err, want)
		}
		if test.note == "" && note != "" {
			t.Errorf("%s: got the note %q, want none", test.state, note)
		}
		if advice := "; set XDG_STATE_HOME to a directory of your own"; test.note != "" &&
			(!strings.HasPrefix(note, got+test.note) || !strings.HasSuffix(note, advice)) {
			t.Errorf("%s: got the note %q, want %q and %q", test.state, note, got+test.note, advice)
		}
	}
	if err := try("/proc/self"); err == nil {
		t.Error("got no error for a directory in which no file can be made")
	}
}

// TestCheck checks that only a directory that no other user can write to is accepted.
func TestCheck(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for m, want := range map[os.FileMode]bool{0o700: true, 0o755: true, 0o720: false, 0o702: false} {
		mode(t, root, m)
		if err := Check(root); (err == nil) != want {
			t.Errorf("mode %o: got %v, want it accepted: %v", m, err, want)
		}
	}
	mode(t, root, 0o700)
	file, link := filepath.Join(root, "file"), filepath.Join(root, "link")
	must.Do(t, os.WriteFile(file, nil, 0o600))
	must.Do(t, os.Symlink(root, link))
	bad := []string{file, link, filepath.Join(root, "none")}
	if os.Geteuid() == 0 {
		foreign := filepath.Join(root, "foreign")
		must.Do(t, os.Mkdir(foreign, 0o700))
		must.Do(t, os.Chown(foreign, 1, 1))
		bad = append(bad, foreign)
	}
	for _, path := range bad {
		if err := Check(path); err == nil {
			t.Errorf("%s: got no error", path)
		}
	}
}
