//go:build linux

package layer

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
)

// brokenOnce is a reader that fails. A second read of it ends the test at once.
type brokenOnce struct{ failed bool }

func (r *brokenOnce) Read([]byte) (int, error) {
	if r.failed {
		panic("the archive was read again after it had failed")
	}
	r.failed = true
	return 0, io.ErrClosedPipe
}

// TestFillEnds checks that an archive that fails ends its file. The test runs before the parallel ones, which
// would read such an archive for ever.
func TestFillEnds(t *testing.T) {
	must.Is(t, (&untar{buffer: make([]byte, 1)}).fill(-1, 1, &brokenOnce{}), io.ErrClosedPipe)
}

// TestOpenDirFails checks that the error of a directory that cannot be opened names the operation and the
// directory.
func TestOpenDirFails(t *testing.T) {
	t.Parallel()
	_, err := OpenDir(openTest(t, t.TempDir()), "a/b")
	failed, ok := errors.AsType[*fs.PathError](err)
	if !ok || failed.Op != "open" || failed.Path != "a/b" || !errors.Is(failed.Err, unix.ENOENT) {
		t.Errorf("got error %v, want that a/b could not be opened", err)
	}
}

// TestWhiteoutsAreMarked checks that exactly the directories with new whiteouts are marked for the overlay.
func TestWhiteoutsAreMarked(t *testing.T) {
	t.Parallel()
	below, to := t.TempDir(), t.TempDir()
	var image bytes.Buffer
	w := tar.NewWriter(&image)
	for _, d := range []string{"removes", "adds"} {
		must.Do(t, os.Mkdir(filepath.Join(below, d), 0o755))
		must.Do(t, os.WriteFile(filepath.Join(below, d, "a"), nil, 0o600))
	}
	for _, name := range []string{"removes/" + whiteoutPrefix + "a", "adds/b"} {
		must.Do(t, w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}))
	}
	must.Do(t, w.Close())
	must.Do(t, Untar(&image, TarOptions{Below: []*os.File{openTest(t, below)}, To: openTest(t, to), IDs: 1}))
	for name, want := range map[string]error{"removes": nil, "adds": unix.ENODATA} {
		if _, err := unix.Lgetxattr(filepath.Join(to, name), originAttr, nil); !errors.Is(err, want) {
			t.Errorf("%s: got error %v for its mark, want %v", name, err, want)
		}
	}
}

func openTest(t *testing.T, dir string) *os.File {
	t.Helper()
	f, err := os.Open(dir)
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, f.Close()) })
	return f
}
