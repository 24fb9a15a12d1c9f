package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

func TestClaim(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		make func(t *testing.T, dir string) error
		want string // text of the error; "": the directory becomes private
	}{
		"none":            {func(*testing.T, string) error { return nil }, ""},
		"empty and open":  {func(_ *testing.T, dir string) error { return os.Mkdir(dir, 0o755) }, ""},
		"file system":     {func(_ *testing.T, dir string) error { return os.MkdirAll(filepath.Join(dir, "lost+found"), 0o755) }, ""},
		"of something":    {func(_ *testing.T, dir string) error { return os.MkdirAll(filepath.Join(dir, "photos"), 0o755) }, "it holds photos"},
		"file":            {func(_ *testing.T, dir string) error { return os.WriteFile(dir, nil, 0o600) }, "not a directory"},
		"nowhere":         {func(_ *testing.T, dir string) error { return os.Symlink("/proc/nowhere", dir) }, ""},
		"link to a store": {linkToStore, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "state")
			must.Do(t, tt.make(t, dir))
			if name == "nowhere" {
				if _, err := Open(t.Context(), dir); err == nil {
					t.Error("a link to nowhere was opened")
				}
				return
			}
			before, _ := os.Stat(dir)
			s, err := Open(t.Context(), dir)
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got error %v, want %q in it", err, tt.want)
				}
				if after, _ := os.Stat(dir); after.Mode() != before.Mode() {
					t.Errorf("got mode %v, want %v as before", after.Mode(), before.Mode())
				}
				return
			}
			must.Do(t, err)
			defer s.Close()
			if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("got %v and error %v, want mode 0700", info.Mode(), err)
			}
		})
	}
}

func linkToStore(t *testing.T, dir string) error {
	kept := t.TempDir()
	if err := open(t, kept).Close(); err != nil {
		return err
	}
	return os.Symlink(kept, dir)
}

// TestForeignDirectory checks that the directory of another user is refused, even if root, who
// could use it, opens it.
func TestForeignDirectory(t *testing.T) {
	t.Parallel()
	dir := "/" // root's
	if os.Geteuid() == 0 {
		dir = t.TempDir()
		must.Do(t, os.Chown(dir, 4711, 4711))
	}
	if _, err := Open(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "a directory of this user") {
		t.Errorf("%s: got error %v, want it to be refused", dir, err)
	}
}

// TestUnreadableDirectory checks that a directory that cannot be read is not taken for an empty one.
func TestUnreadableDirectory(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file") // no user can list it, not even root
	must.Do(t, os.WriteFile(file, nil, 0o600))
	if err := claimable(file); err == nil {
		t.Error("got no error")
	}
}

// TestLockFile opens stores whose lock file contains text that no store writes.
func TestLockFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, lockFile), []byte("999999999999999\npid:[123456789012345]\nand more\n"), 0o600))
	open(t, dir)
	_, err := Open(t.Context(), dir)
	if inUse, ok := errors.AsType[*InUseError](err); !ok || inUse.Elsewhere || inUse.PID != os.Getpid() {
		t.Errorf("after a longer text: got %v, want it to be in use by this process", err)
	}
	text, err := os.ReadFile(filepath.Join(dir, lockFile))
	if err != nil || strings.Contains(string(text), "more") {
		t.Errorf("after a longer text: got %q (%v), want nothing of it", text, err)
	}

	dir, target := t.TempDir(), filepath.Join(t.TempDir(), "file")
	err = errors.Join(os.WriteFile(target, []byte("text"), 0o600), os.Symlink(target, filepath.Join(dir, lockFile)))
	must.Do(t, err)
	if _, err := Open(t.Context(), dir); err == nil {
		t.Error("a link was taken for the lock")
	}
	if text, err := os.ReadFile(target); string(text) != "text" {
		t.Errorf("behind the link: got %q (%v), want the file as it was", text, err)
	}
}
