//go:build linux

package privatedir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

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
