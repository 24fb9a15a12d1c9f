package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
)

// archived returns an archive of entries. Files have as many zeros as their header says.
func archived(t *testing.T, entries ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for _, header := range entries {
		must.Do(t, tw.WriteHeader(&header))
		_, err := tw.Write(make([]byte, header.Size))
		must.Do(t, err)
	}
	must.Do(t, tw.Close())
	return &b
}

// TestUnpackBoundsOfTheWhole checks that each bound allows one less and exactly its value,
// and that bytes and entries are counted over the whole archive.
func TestUnpackBoundsOfTheWhole(t *testing.T) {
	t.Parallel()
	file := func(name string, size int) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(size)}
	}
	// A name of n bytes that is short once it is cleaned.
	long := func(n int) string { return strings.Repeat("./", (n-1)/2) + strings.Repeat("/", (n-1)%2) + "y" }
	for what, tt := range map[string]struct {
		bound   int
		entries func(n int) []tar.Header
		want    error // nil: any error
	}{
		"bytes of one file":       {8, func(n int) []tar.Header { return []tar.Header{file("a", n)} }, ErrTooLarge},
		"bytes of two files":      {8, func(n int) []tar.Header { return []tar.Header{file("a", 5), file("b", n-5)} }, ErrTooLarge},
		"bytes written to a file": {8, func(n int) []tar.Header { return []tar.Header{file("a", 5), file("a", n-5)} }, ErrTooLarge},
		"entries": {4, func(n int) []tar.Header {
			return []tar.Header{file("a", 0), file("b", 0), file("c", 0), file("d", 0), file("e", 0)}[:n]
		}, ErrTooLarge},
		"directories of a name": {4, func(n int) []tar.Header { return []tar.Header{file(strings.Repeat("d/", n-1)+"a", 0)} }, ErrTooLarge},
		"bytes of a name": {maxArchiveName, func(n int) []tar.Header {
			return []tar.Header{{Name: long(n), Typeflag: tar.TypeReg, Mode: 0o600}}
		}, nil},
		"bytes of a target": {maxArchiveName, func(n int) []tar.Header {
			return []tar.Header{file("y", 0), {Name: "a", Typeflag: tar.TypeLink, Linkname: long(n)}}
		}, nil},
	} {
		for n := tt.bound - 1; n <= tt.bound+1; n++ {
			u := &Unpacker{Root: openRoot(t, t.TempDir()), MaxBytes: 8, MaxFiles: 4, Skipped: func(string, string) {}}
			err := u.Unpack(t.Context(), archived(t, tt.entries(n)...))
			if (err != nil) != (n > tt.bound) || err != nil && tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("%d %s: got %v, want an error above %d", n, what, err, tt.bound)
			}
		}
	}
	for what, u := range map[string]*Unpacker{"bytes": {MaxFiles: 4}, "files": {MaxBytes: 8}} { // a limit of 0 is a limit
		u.Root = openRoot(t, t.TempDir())
		if err := u.Unpack(t.Context(), archived(t, file("a", 1))); !errors.Is(err, ErrTooLarge) {
			t.Errorf("no %s allowed: got %v, want %v", what, err, ErrTooLarge)
		}
	}
}

// TestUnpackInTheWay checks that a directory is not replaced by a file, and not the other way around.
func TestUnpackInTheWay(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has other errors")
	}
	file := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o600} }
	for _, tt := range []struct {
		first, second tar.Header
		want          error
	}{
		{file("a"), file("a/b"), syscall.ENOTDIR},
		{file("a"), tar.Header{Name: "a/", Typeflag: tar.TypeDir, Mode: 0o700}, syscall.ENOTDIR},
		{file("a/b"), file("a"), syscall.ENOTEMPTY},
		{file("a/b"), tar.Header{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "c"}, syscall.ENOTEMPTY},
	} {
		dir := t.TempDir()
		err := into(openRoot(t, dir), nil).Unpack(t.Context(), archived(t, tt.first, tt.second))
		if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.second.Name) {
			t.Errorf("%s over %s: got %v, want %v", tt.second.Name, tt.first.Name, err, tt.want)
		}
		if _, err := os.Lstat(filepath.Join(dir, tt.first.Name)); err != nil {
			t.Errorf("%s over %s: %v", tt.second.Name, tt.first.Name, err)
		}
	}
}

// TestUnpackStopsWithItsContext checks that nothing is written once the context has ended.
func TestUnpackStopsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("told to stop")
	cancel(cause)
	dir := t.TempDir()
	err := into(openRoot(t, dir), nil).Unpack(ctx, archived(t, tar.Header{Name: "a", Typeflag: tar.TypeReg}))
	if found := listing(t, dir); !errors.Is(err, cause) || len(found) > 0 {
		t.Errorf("got %v and %v, want the cause and nothing", err, found)
	}
}

// TestUnpackModesAndTimes checks that modes and times are those of the archive under any
// umask, without the bits that would give others the rights of the owner, and that the
// target itself keeps its own.
func TestUnpackModesAndTimes(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such modes")
	}
	stamp := time.Unix(1_000_000_000, 0)
	entry := func(name string, kind byte, mode int64) tar.Header {
		return tar.Header{Name: name, Typeflag: kind, Mode: mode, ModTime: stamp}
	}
	dir := filepath.Join(t.TempDir(), "target")
	must.Do(t, os.Mkdir(dir, 0o750))
	skipped := func(string, string) { // until its mode is set, a directory can be written to
		if info, err := os.Lstat(filepath.Join(dir, "closed")); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("while entries come: got %v and error %v, want the mode 0700", info, err)
		}
	}
	err := into(openRoot(t, dir), skipped).Unpack(t.Context(), archived(t,
		entry("./", tar.TypeDir, 0o711), entry("program", tar.TypeReg, 0o6777), entry("secret", tar.TypeReg, 0o400),
		entry("open/", tar.TypeDir, 0o7777), entry("open/file", tar.TypeReg, 0o666), entry("closed/", tar.TypeDir, 0o500), entry("closed/pipe", tar.TypeFifo, 0o600), entry("closed/file", tar.TypeReg, 0o604),
		entry("above/", tar.TypeDir, 0o555), entry("above/made/file", tar.TypeReg, 0o600), entry("above/made/other/file", tar.TypeReg, 0o600), // finished after everything below it
		entry("made/file", tar.TypeReg, 0o600), // its directory has no entry, and keeps the mode and the time at which it was made
	))
	must.Do(t, err)
	for name, want := range map[string]fs.FileMode{
		".": fs.ModeDir | 0o750, "program": 0o777, "secret": 0o400,
		"open": fs.ModeDir | 0o777, "open/file": 0o666, "closed": fs.ModeDir | 0o500, "closed/file": 0o604, "above": fs.ModeDir | 0o555, "above/made/file": 0o600,
	} {
		info, err := os.Lstat(filepath.Join(dir, name))
		must.Do(t, err)
		if info.Mode() != want {
			t.Errorf("%s: got mode %v, want %v", name, info.Mode(), want)
		}
		if name != "." && !info.ModTime().Equal(stamp) {
			t.Errorf("%s: got time %v, want %v", name, info.ModTime(), stamp)
		}
	}
	if info, err := os.Lstat(filepath.Join(dir, "made")); err != nil || info.Mode().Perm()&0o700 != 0o700 || time.Since(info.ModTime()) > time.Hour {
		t.Errorf("a directory without an entry: got %v and error %v, want one that its owner can use, of now", info, err)
	}
	for _, name := range []string{"closed", "above"} { // so that they can be removed
		must.Do(t, os.Chmod(filepath.Join(dir, name), 0o700))
	}
}

// TestUnpackCutOff checks that an archive that ends within an entry is an error.
func TestUnpackCutOff(t *testing.T) {
	t.Parallel()
	whole := archived(t, tar.Header{Name: "a", Typeflag: tar.TypeReg, Size: 1000, Mode: 0o600}, tar.Header{Name: "b", Typeflag: tar.TypeReg, Mode: 0o600}).Bytes()
	root := openRoot(t, t.TempDir())
	for n, want := range map[int]error{
		1: io.ErrUnexpectedEOF, 511: io.ErrUnexpectedEOF, 512: io.ErrUnexpectedEOF, 513: io.ErrUnexpectedEOF, 1511: io.ErrUnexpectedEOF,
		1536: nil, 1537: io.ErrUnexpectedEOF, 2047: io.ErrUnexpectedEOF, 2048: nil, len(whole): nil,
	} {
		if err := into(root, nil).Unpack(t.Context(), bytes.NewReader(whole[:n])); !errors.Is(err, want) {
			t.Errorf("the first %d of %d bytes: got %v, want %v", n, len(whole), err, want)
		}
	}
	damaged := bytes.Clone(whole)
	damaged[0] ^= 1
	must.Is(t, into(root, nil).Unpack(t.Context(), bytes.NewReader(damaged)), tar.ErrHeader)
}

// TestUnpackMovedAway checks that a tree that is moved away while it is unpacked is an error, on the way
// down and on the way up again, and that nothing is left open.
func TestUnpackMovedAway(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows moves no directory that is open")
	}
	deep := strings.Repeat("d/", maxOpenDirs+2)
	directory := func(name string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o700}
	}
	pipe := tar.Header{Name: "d/pipe", Typeflag: tar.TypeFifo}
	for what, entries := range map[string][]tar.Header{
		"up":    {directory("d/"), {Name: deep + "f", Typeflag: tar.TypeReg, Mode: 0o600}, pipe},
		"down":  {directory("d/"), {Name: deep + "pipe", Typeflag: tar.TypeFifo}, directory("d/x/")},
		"again": {directory("d/"), pipe, directory("other/")},
	} {
		dir := t.TempDir()
		u := into(openRoot(t, dir), func(string, string) {
			must.Do(t, os.Rename(filepath.Join(dir, "d"), filepath.Join(dir, "moved")))
		})
		if err := u.Unpack(t.Context(), archived(t, entries...)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %v, want %v", what, err, fs.ErrNotExist)
		}
	}
}
