//go:build linux

package layer

import (
	"archive/tar"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestAttributesOfEntries checks that a file gets the attributes of its entry that are meant for files,
// and nothing else of the entry's records.
func TestAttributesOfEntries(t *testing.T) {
	t.Parallel()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	must.Do(t, err)
	defer f.Close()
	header := &tar.Header{Mode: 0o640, PAXRecords: map[string]string{tarAttr + "user.kept": "a", "user.record": "b", tarAttr + overlayAttr + "x": "c"}}
	must.Do(t, (&untar{o: TarOptions{IDs: 1}}).attributes(int(f.Fd()), header, 0o600))
	for name, want := range map[string]error{"user.kept": nil, "user.record": unix.ENODATA, overlayAttr + "x": unix.ENODATA} {
		if _, err := unix.Fgetxattr(int(f.Fd()), name, nil); !errors.Is(err, want) {
			t.Errorf("%s: got error %v, want %v", name, err, want)
		}
	}
	info, err := f.Stat()
	must.Do(t, err)
	if info.Mode() != 0o640 {
		t.Errorf("got mode %v, want 0640", info.Mode())
	}
	for name, want := range map[string]struct{ file, dir bool }{
		capabilityAttr: {true, false}, "user.a": {true, true}, overlayAttr + "opaque": {}, "trusted.a": {}, "security.selinux": {},
	} {
		if wantedAttribute(name, false) != want.file || wantedAttribute(name, true) != want.dir {
			t.Errorf("%s: wanted of a file: %v, of a directory: %v", name, wantedAttribute(name, false), wantedAttribute(name, true))
		}
	}
}

// TestManifestThatIsNoFile checks that only a missing or garbled manifest is called damaged, and that none
// is written into a directory that is not there.
func TestManifestThatIsNoFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.Do(t, os.Mkdir(Name(dir), 0o700))
	if _, err := Read(dir); !errors.Is(err, unix.EISDIR) || errors.Is(err, ErrDamaged) {
		t.Errorf("got %v, want %v", err, unix.EISDIR)
	}
	must.Is(t, Manifest{}.Write(filepath.Join(dir, "none")), fs.ErrNotExist)
}
