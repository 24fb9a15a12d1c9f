package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestClaim(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		make func(t *testing.T, dir string) error
		want string // in the error; "": it becomes private
	}{
		"none":            {func(*testing.T, string) error { return nil }, ""},
		"empty and open":  {func(_ *testing.T, dir string) error { return os.Mkdir(dir, 0o755) }, ""},
		"of something":    {func(_ *testing.T, dir string) error { return os.MkdirAll(filepath.Join(dir, "photos"), 0o755) }, "it holds photos"},
		"file":            {func(_ *testing.T, dir string) error { return os.WriteFile(dir, nil, 0o600) }, "not a directory"},
		"nowhere":         {func(_ *testing.T, dir string) error { return os.Symlink("/proc/nowhere", dir) }, ""},
		"link to a store": {linkToStore, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "state")
			if err := tt.make(t, dir); err != nil {
				t.Fatal(err)
			}
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
			if err != nil {
				t.Fatal(err)
			}
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

func TestForeignDirectory(t *testing.T) {
	t.Parallel()
	dir := "/proc/self" // root's, or one in which nothing can be made
	if os.Geteuid() != 0 {
		dir = "/"
	}
	if _, err := Open(t.Context(), dir); err == nil {
		t.Errorf("%s became a state directory", dir)
	}
}
