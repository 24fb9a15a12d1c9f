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
