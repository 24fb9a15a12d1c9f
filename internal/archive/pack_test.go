package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/e2bctl/e2bctl/internal/must"
)

// entriesOf returns the entries of an archive, with kind, mode, name, target and content.
func entriesOf(t *testing.T, r io.Reader) (all []string) {
	t.Helper()
	for archive := tar.NewReader(r); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		must.Do(t, err)
		content, err := io.ReadAll(archive)
		must.Do(t, err)
		all = append(all, fmt.Sprintf("%c %o %s>%s=%s", header.Typeflag, header.Mode, header.Name, header.Linkname, content))
	}
}

// TestPackExcludes checks that excluded files are left out, and excluded directories as a whole.
func TestPackExcludes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a", "out/b", "out/in/c", "z/out", "z/y"} {
		must.Do(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600))
	}
	var asked []string
	p := &Packer{Root: openRoot(t, dir), Exclude: func(name string, entry fs.DirEntry) bool {
		asked = append(asked, name)
		return entry.Name() == "out"
	}}
	var archive bytes.Buffer
	must.Do(t, p.Pack(t.Context(), &archive))
	if diff := cmp.Diff([]string{"0 600 a>=a", "5 700 z/>=", "0 600 z/y>=z/y"}, entriesOf(t, &archive)); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a", "out", "z", "z/out", "z/y"}, asked); diff != "" {
		t.Errorf("asked for (-want +got):\n%s", diff)
	}
}

// TestPackHeaders checks everything in the headers of an archive.
func TestPackHeaders(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such modes")
	}
	dir, stamp := t.TempDir(), time.Unix(1_000_000_000, 123_456_789)
	must.Do(t, errors.Join(os.Mkdir(filepath.Join(dir, "dir"), 0o750), os.Mkdir(filepath.Join(dir, "closed"), 0o550), os.Symlink("dir", filepath.Join(dir, "link")),
		os.WriteFile(filepath.Join(dir, "program"), []byte("run"), 0o700), os.Chmod(filepath.Join(dir, "program"), 0o700|fs.ModeSetuid)))
	for _, name := range []string{"dir", "closed", "program"} {
		must.Do(t, os.Chtimes(filepath.Join(dir, name), stamp, stamp))
	}
	link, err := os.Lstat(filepath.Join(dir, "link"))
	must.Do(t, err)
	var archive bytes.Buffer
	must.Do(t, (&Packer{Root: openRoot(t, dir)}).Pack(t.Context(), &archive))
	for r, want := range map[io.Reader][]tar.Header{
		&archive: {
			{Typeflag: tar.TypeDir, Name: "closed/", Mode: 0o550, ModTime: stamp}, {Typeflag: tar.TypeDir, Name: "dir/", Mode: 0o750, ModTime: stamp},
			{Typeflag: tar.TypeSymlink, Name: "link", Linkname: "dir", Mode: 0o777, ModTime: link.ModTime()},
			{Typeflag: tar.TypeReg, Name: "program", Mode: 0o700, Size: 3, ModTime: stamp},
		},
		packedFS(t, os.DirFS(dir)): {
			{Typeflag: tar.TypeDir, Name: "closed/", Mode: 0o777}, {Typeflag: tar.TypeDir, Name: "dir/", Mode: 0o777},
			{Typeflag: tar.TypeSymlink, Name: "link", Linkname: "dir", Mode: 0o777}, {Typeflag: tar.TypeReg, Name: "program", Mode: 0o766, Size: 3},
		},
	} {
		var got []tar.Header
		for entries := tar.NewReader(r); ; {
			header, err := entries.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			must.Do(t, err)
			if header.ModTime.Equal(time.Unix(0, 0)) { // none
				header.ModTime = time.Time{}
			}
			got = append(got, *header)
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(tar.Header{}, "Format", "PAXRecords")); diff != "" {
			t.Errorf("headers (-want +got):\n%s", diff)
		}
	}
}

func packedFS(t *testing.T, fsys fs.FS) io.Reader {
	t.Helper()
	var archive bytes.Buffer
	must.Do(t, PackFS(t.Context(), fsys, &archive))
	return &archive
}

// listedDir is a directory with a mode that WalkDir may be unable to enter.
type listedDir struct{ mode fs.FileMode }

func (d listedDir) Name() string               { return "dir" }
func (d listedDir) Size() int64                { return 0 }
func (d listedDir) Mode() fs.FileMode          { return fs.ModeDir | d.mode }
func (d listedDir) Type() fs.FileMode          { return fs.ModeDir }
func (d listedDir) ModTime() time.Time         { return time.Time{} }
func (d listedDir) IsDir() bool                { return true }
func (d listedDir) Sys() any                   { return nil }
func (d listedDir) Info() (fs.FileInfo, error) { return d, nil }

// TestPackClosed checks that each directory without all rights of its owner is written after its
// contents.
func TestPackClosed(t *testing.T) {
	t.Parallel()
	for mode := range fs.FileMode(8) {
		p := &Packer{tar: NewWriter(io.Discard)}
		if err := p.add("dir", listedDir{mode << 6}); err != nil || len(p.closed) == 0 != (mode == 7) {
			t.Errorf("mode %#o: got error %v, and %d wait for their contents", mode<<6, err, len(p.closed))
		}
	}
}

// TestPackGone checks that an entry that is listed and cannot be read is an error, and not left out.
func TestPackGone(t *testing.T) {
	t.Parallel()
	listed, err := fs.ReadDir(fstest.MapFS{"file": {}, "link": {Mode: fs.ModeSymlink}}, ".")
	must.Do(t, err)
	p := &Packer{Root: openRoot(t, t.TempDir()), tar: NewWriter(io.Discard)}
	for _, entry := range listed {
		must.Is(t, p.add(entry.Name(), entry), fs.ErrNotExist)
	}
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	listed, err = os.ReadDir(dir) // each is looked at later
	must.Do(t, errors.Join(err, os.Remove(filepath.Join(dir, "file"))))
	must.Is(t, p.add("file", listed[0]), fs.ErrNotExist)
	root, err := os.OpenRoot(t.TempDir())
	must.Do(t, err)
	must.Do(t, root.Close())
	must.Is(t, (&Packer{Root: root}).Pack(t.Context(), io.Discard), os.ErrClosed)
	must.Is(t, PackFS(t.Context(), root.FS(), io.Discard), os.ErrClosed)
}

// TestPackShrinking checks that a file that becomes shorter while it is read is named.
func TestPackShrinking(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "file"), make([]byte, 4*gathered), 0o600))
	shrinks := writerFunc(func(p []byte) (int, error) { return len(p), os.Truncate(filepath.Join(dir, "file"), gathered) })
	err := (&Packer{Root: openRoot(t, dir)}).Pack(t.Context(), shrinks)
	if err == nil || !strings.Contains(err.Error(), "file became shorter while it was read") {
		t.Errorf("got error %v, want one that names the file", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestPackFS checks that files that can be executed stay so, that nothing but files, directories and
// links is packed, and that every file is closed, also after an error.
func TestPackFS(t *testing.T) {
	t.Parallel()
	all := func() opened {
		return opened{fstest.MapFS{
			"dir/program": {Data: []byte("run"), Mode: 0o755}, "dir/own": {Data: []byte("own"), Mode: 0o100},
			"file": {Data: []byte("text"), Mode: 0o400}, "link": {Data: []byte("dir/program"), Mode: fs.ModeSymlink | 0o777},
		}, new(int)}
	}
	whole := all()
	var archive bytes.Buffer
	must.Do(t, PackFS(t.Context(), whole, &archive))
	want := []string{"5 777 dir/>=", "0 766 dir/own>=own", "0 777 dir/program>=run", "0 666 file>=text", "2 777 link>dir/program="}
	if diff := cmp.Diff(want, entriesOf(t, &archive)); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	stopped, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("told to stop")
	cancel(cause)
	pipe, short := all(), all()
	pipe.MapFS["a"] = &fstest.MapFile{Mode: fs.ModeNamedPipe}
	short.MapFS["a"] = &fstest.MapFile{Data: []byte("text"), Sys: "short"}
	unknown := all()
	unknown.MapFS["a"] = &fstest.MapFile{Sys: "unknown"}
	shut, lost := all(), all()
	shut.MapFS["a"] = &fstest.MapFile{Sys: "shut"}
	lost.MapFS["a"] = &fstest.MapFile{Sys: "shut", Mode: fs.ModeSymlink}
	for what, tt := range map[string]struct {
		done bool // the context has ended
		from opened
		to   io.Writer
		want error
	}{
		"stopped":             {true, all(), io.Discard, cause},
		"a pipe":              {false, pipe, io.Discard, fs.ErrInvalid},
		"a file that shrinks": {false, short, io.Discard, io.ErrUnexpectedEOF},
		"a file that is shut": {false, shut, io.Discard, fs.ErrPermission},
		"a link that is shut": {false, lost, io.Discard, fs.ErrPermission},
		"without a size":      {false, unknown, io.Discard, fs.ErrPermission},
		"a full disk":         {false, all(), writerFunc(func([]byte) (int, error) { return 0, fs.ErrPermission }), fs.ErrPermission},
	} {
		ctx := t.Context()
		if tt.done {
			ctx = stopped
		}
		if err := PackFS(ctx, tt.from, tt.to); !errors.Is(err, tt.want) {
			t.Errorf("%s: got error %v, want %v", what, err, tt.want)
		}
		if *tt.from.files != 0 {
			t.Errorf("%s: %d files are left open", what, *tt.from.files)
		}
	}
	if *whole.files != 0 {
		t.Errorf("%d files are left open", *whole.files)
	}
}

// TestPackFSNames checks that the error of an entry tells what was done with which name.
func TestPackFSNames(t *testing.T) {
	t.Parallel()
	full := writerFunc(func([]byte) (int, error) { return 0, fs.ErrPermission })
	for what, tt := range map[string]struct {
		mode fs.FileMode
		text string
		want error
	}{"a pipe": {fs.ModeNamedPipe, "", fs.ErrInvalid}, "links on a full disk": {fs.ModeSymlink, "a", fs.ErrPermission}, "directories on a full disk": {fs.ModeDir, "", fs.ErrPermission}, "files on a full disk": {0, "", fs.ErrPermission}} {
		many := fstest.MapFS{}
		for n := range 2 * gathered / 512 { // so many names that the buffer is written before the end
			many[fmt.Sprintf("of%d", n)] = &fstest.MapFile{Mode: tt.mode, Data: []byte(tt.text)}
		}
		err := PackFS(t.Context(), many, full)
		named, ok := errors.AsType[*fs.PathError](err)
		if !ok || named.Op != "copy" || many[named.Path] == nil || !errors.Is(err, tt.want) {
			t.Errorf("%s: got error %v, want %v of the copy of a name", what, err, tt.want)
		}
	}
}

// opened counts its open files. A file with Sys "shut" cannot be
// opened or read as a link. A file with Sys "short" ends before its size. The size of an open
// file with Sys "unknown" cannot be read.
type opened struct {
	fstest.MapFS
	files *int
}

func (o opened) Open(name string) (fs.File, error) {
	if file := o.MapFS[name]; file != nil && file.Sys == "shut" {
		return nil, fs.ErrPermission
	}
	file, err := o.MapFS.Open(name)
	if err != nil {
		return nil, err
	}
	*o.files++
	return countedFile{file, o.files}, nil
}

func (o opened) ReadLink(name string) (string, error) {
	if o.MapFS[name].Sys == "shut" {
		return "", fs.ErrPermission
	}
	return o.MapFS.ReadLink(name)
}

type countedFile struct {
	fs.File
	files *int
}

func (f countedFile) Stat() (fs.FileInfo, error) {
	info, err := f.File.Stat()
	if err == nil && info.Sys() == "unknown" {
		return nil, fs.ErrPermission
	}
	return info, err
}

func (f countedFile) Read(p []byte) (int, error) {
	if info, err := f.Stat(); err == nil && info.Sys() == "short" {
		return 0, io.EOF
	}
	return f.File.Read(p)
}

func (f countedFile) Close() error {
	*f.files--
	return f.File.Close()
}
