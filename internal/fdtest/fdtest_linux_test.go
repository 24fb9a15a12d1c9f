package fdtest

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestOpen checks that a directory and the files below it are found while they are open, and not those beside it.
func TestOpen(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a")
	must.Do(t, os.MkdirAll(filepath.Join(dir, "b"), 0o700))
	var files []*os.File
	for _, name := range []string{dir, filepath.Join(dir, "b", "c"), dir + "c"} {
		flag := os.O_RDWR | os.O_CREATE
		if name == dir {
			flag = os.O_RDONLY
		}
		for range 2 {
			file, err := os.OpenFile(name, flag, 0o600)
			must.Do(t, err)
			files = append(files, file)
		}
	}
	got := Open(t, dir)
	slices.Sort(got)
	if want := []string{dir, dir, filepath.Join(dir, "b", "c"), filepath.Join(dir, "b", "c")}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := Open(t, filepath.Join(dir, "b", "c")); len(got) != 2 {
		t.Errorf("got %q for a file, want its two descriptors", got)
	}
	for _, file := range files {
		must.Do(t, file.Close())
	}
	if got := Open(t, dir); len(got) > 0 {
		t.Errorf("got %q, and all are closed", got)
	}
}
