//go:build linux

package treecopy

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
)

var me = Owner{uint32(os.Geteuid()), uint32(os.Getegid())}

// at is a modification time that no file has by chance.
var at = time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)

// packed returns an archive. files are names and contents, alternately. A name that ends in / is a
// directory. A content that begins with -> is a symbolic link, and one that begins with => is a
// hard link.
func packed(t testing.TB, files ...string) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		h := &tar.Header{Name: files[i], Mode: 0o640, Size: int64(len(files[i+1])), Typeflag: tar.TypeReg, ModTime: at, Uid: int(me.UID), Gid: int(me.GID)}
		if target, ok := strings.CutPrefix(files[i+1], "->"); ok {
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, target, 0
		} else if target, ok := strings.CutPrefix(files[i+1], "=>"); ok {
			h.Typeflag, h.Linkname, h.Size = tar.TypeLink, target, 0
		} else if strings.HasSuffix(files[i], "/") {
			h.Typeflag, h.Mode, h.Size = tar.TypeDir, 0o750, 0
		}
		must.Do(t, w.WriteHeader(h))
		if h.Size > 0 {
			_, err := io.WriteString(w, files[i+1])
			must.Do(t, err)
		}
	}
	must.Do(t, w.Close())
	return &b
}

// tree describes the files in a directory.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	must.Do(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		text, _ := os.Readlink(path)
		if info.Mode().IsRegular() {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text = string(content)
		}
		fmt.Fprintf(&b, "%s %v %s\n", name, info.Mode(), text)
		return nil
	}))
	return b.String()
}

func TestPlace(t *testing.T) {
	t.Parallel()
	files := []string{"one", "1", "dir/", "", "dir/two", "2", "dir/deep/three", "3", "dir/link", "->two", "dir/hard", "=>dir/two", "dir-other", "x"}
	const inside = "deep dDIR \ndeep/three -rw-r----- 3\nhard -rw-r----- 2\nlink Lrwxrwxrwx two\ntwo -rw-r----- 2\n"
	under := func(dir string) string {
		var b strings.Builder
		for line := range strings.Lines(inside) {
			b.WriteString(dir + "/" + line)
		}
		return b.String()
	}
	const shared = "drwxr-xr-x" // mode of directories that the archive does not contain
	mode := uint32(0o4755)
	for name, tt := range map[string]struct {
		source, target string
		mode           *uint32
		want           string
	}{
		"a file":                   {"one", "new", nil, "new -rw-r----- 1\n"},
		"into a new directory":     {"one", "a/b/", nil, "a DIR \na/b DIR \na/b/one -rw-r----- 1\n"},
		"with a mode":              {"one", "new", &mode, "new urwxr-xr-x 1\n"},
		"a mode for directories":   {".", "to", &mode, "to DIR \nto/dir durwxr-xr-x \nto/dir/deep DIR \nto/dir/deep/three urwxr-xr-x 3\nto/dir/hard urwxr-xr-x 2\nto/dir/link Lrwxrwxrwx two\nto/dir/two urwxr-xr-x 2\nto/dir-other urwxr-xr-x x\nto/one urwxr-xr-x 1\n"},
		"what is in a directory":   {"dir", "to", nil, "to DIR \n" + under("to")},
		"with slashes":             {"./dir//", "to/", nil, "to DIR \n" + under("to")},
		"a pattern":                {"dir/*.x", "to", nil, "to DIR \n" + under("to")},
		"a pattern with classes":   {"dir/[a-z]?/**", "to", nil, "to DIR \n" + under("to")},
		"a file of a directory":    {"dir/deep/three", "to", nil, "to -rw-r----- 3\n"},
		"a link":                   {"dir/link", "to/", nil, "to DIR \nto/link Lrwxrwxrwx two\n"},
		"each by itself":           {"", "to/", nil, "to DIR \n" + strings.NewReplacer("to/hard", "to/dir-other -rw-r----- x\nto/hard", "to/two", "to/one -rw-r----- 1\nto/two").Replace(under("to"))},
		"all of it":                {".", "to", nil, "to DIR \nto/dir drwxr-x--- \n" + under("to/dir") + "to/dir-other -rw-r----- x\nto/one -rw-r----- 1\n"},
		"a directory that is over": {"dir", "./x/../to/.", nil, "to DIR \n" + under("to")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			target := dir + "/" + tt.target
			must.Do(t, Place(packed(t, files...), Placement{Source: tt.source, Target: target, Mode: tt.mode, Parents: me, Owner: &me}))
			want := strings.ReplaceAll(strings.ReplaceAll(tt.want, "dDIR", shared), "DIR", shared)
			if diff := cmp.Diff(want, tree(t, dir)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestPlaceInClosedDirectories checks that the contents of a directory are copied even if its mode
// denies search permission, also for an ordinary user.
func TestPlaceInClosedDirectories(t *testing.T) {
	t.Parallel()
	to := t.TempDir() + "/to"
	mode := uint32(0o600)
	p := Placement{Source: ".", Target: to, Mode: &mode, Parents: me, Owner: &me}
	must.Do(t, Place(packed(t, "dir/", "", "dir/deep/", "", "dir/deep/file", "1"), p))
	for _, name := range []string{"/dir", "/dir/deep"} {
		info, err := os.Stat(to + name)
		must.Do(t, err)
		if got := info.Mode(); got != fs.ModeDir|0o600 {
			t.Errorf("%s has the mode %v, want 0600", name, got)
		}
		must.Do(t, os.Chmod(to+name, 0o700))
	}
	if text, err := os.ReadFile(to + "/dir/deep/file"); err != nil || string(text) != "1" {
		t.Errorf("the file has %q, %v", text, err)
	}
}

// TestPlaceOver checks that existing files are replaced. Existing directories keep their other
// contents and receive the mode in the archive, except for the target.
func TestPlaceOver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.Do(t, Place(packed(t, "x/", "", "x/kept", "kept", "x/over", "old", "x/link", "->kept", "x/sub/", "", "x/alias", "->sub"), Placement{Source: "x", Target: dir}))
	must.Do(t, os.Chmod(dir+"/sub", 0o711))
	must.Do(t, Place(packed(t, "y/", "", "y/over", "new", "y/link", "file", "y/sub/", "", "y/sub/in", "in", "y/alias/", "", "y/alias/too", "too"), Placement{Source: "y", Target: dir}))
	want := "alias Lrwxrwxrwx sub\nkept -rw-r----- kept\nlink -rw-r----- file\nover -rw-r----- new\nsub drwxr-x--- \nsub/in -rw-r----- in\nsub/too -rw-r----- too\n"
	if diff := cmp.Diff(want, tree(t, dir)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if info, err := os.Stat(dir + "/over"); err != nil || !info.ModTime().Equal(at) {
		t.Errorf("got %v and error %v, want the time of the archive", info.ModTime(), err)
	}
	must.Do(t, Place(packed(t, "one", "1"), Placement{Source: "one", Target: dir + "/sub"}))
	if _, err := os.Stat(dir + "/sub/one"); err != nil {
		t.Errorf("a file copied to a directory: got %v, want it inside", err)
	}
}

func TestPlaceRefuses(t *testing.T) {
	t.Parallel()
	zipped := func(b *bytes.Buffer, size int) *bytes.Buffer {
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		_, _ = w.Write(b.Bytes())
		_ = w.Close()
		z.Truncate(min(size, z.Len()))
		return &z
	}
	special := func(kind byte) *bytes.Buffer {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		must.Do(t, errors.Join(w.WriteHeader(&tar.Header{Name: "a", Typeflag: kind}), w.Close()))
		return &b
	}
	for name, tt := range map[string]struct {
		archive        *bytes.Buffer
		source, target string
		want           string
	}{
		"text":                        {bytes.NewBufferString("text"), "a", "to", "cannot be unpacked"},
		"nothing":                     {&bytes.Buffer{}, "a", "to", "there is nothing in it"},
		"cut off":                     {zipped(packed(t, "a", "a"), 30), "a", "to", "cannot be unpacked"},
		"bad gzip":                    {bytes.NewBufferString("\x1f\x8b no"), "a", "to", "cannot be unpacked"},
		"half a file":                 {bytes.NewBuffer(packed(t, "a", strings.Repeat("a", 600)).Bytes()[:700]), "a", "to", "cannot be unpacked"},
		"something else":              {packed(t, "a", "a"), "b", "to", "'b' is not in the archive"},
		"a pattern":                   {packed(t, "a", "a"), "b/*", "to", "'b/*' is not in the archive"},
		"a source outside":            {packed(t, "a", "a"), "x/../../a", "to", "leads out of the archive"},
		"a name outside":              {packed(t, "a", "a", "x/../../b", "b"), "a", "to", "leads out of it"},
		"the source above":            {packed(t, "a", "a"), "..", "to", "leads out of the archive"},
		"the name above":              {packed(t, "a", "a", "..", "b"), "a", "to", "leads out of it"},
		"a long name":                 {packed(t, "a", "a"), "a", strings.Repeat("x", 256), "file name too long"},
		"behind a link":               {packed(t, "a/", "", "a/l", "->/", "a/l/x", "x"), "a", "to", "behind a link"},
		"behind a link, deep":         {packed(t, "a/", "", "a/l", "->/", "a/l/x/", "", "a/l/x/y", "y"), "a", "to", "behind a link"},
		"a hard link to what is left": {packed(t, "b", "b", "a", "=>b"), "a", "to", "which is not copied"},
		"a hard link to nothing":      {packed(t, "a", "=>/etc/passwd"), "a", "to", "which is not copied"},
		"a pipe":                      {special(tar.TypeFifo), "a", "to", "neither a file"},
		"a device":                    {special(tar.TypeChar), "a", "to", "neither a file"},
		"a directory over a file":     {packed(t, "a/", "", "a/file/", ""), "a", ".", "there is something in the place of a directory"},
		"a file over a directory":     {packed(t, "a/", "", "a/dir", "x"), "a", ".", "there is a directory in its place"},
		"below a file":                {packed(t, "a", "a"), "a", "file/b", "is no directory"},
		"into a file":                 {packed(t, "a/", ""), "a", "file", "is no directory"},
		"several to one file":         {packed(t, "a", "a", "b", "b"), "", "to", "must be a directory, or end in /"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			must.Do(t, errors.Join(os.Mkdir(dir+"/dir", 0o755), os.WriteFile(dir+"/file", nil, 0o644)))
			err := Place(tt.archive, Placement{Source: tt.source, Target: dir + "/" + tt.target, Parents: me, Owner: &me})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
			if _, refused := errors.AsType[*ArchiveError](err); refused && strings.Contains(err.Error(), "copying to") {
				t.Errorf("got %v, want the reason alone", err)
			}
		})
	}
	if err := Place(packed(t, "a", "a"), Placement{Source: "a", Target: "/dev/full/x"}); err == nil {
		t.Error("got no error for a target below a device")
	}
}

// TestPack checks that files are unchanged after they were packed and placed, including hard links,
// and capabilities if this machine allows them.
func TestPack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	from := dir + "/from"
	must.Do(t, Place(packed(t, "f/", "", "f/a", "a", "f/b", "=>f/a", "f/l", "->a", "f/d/", "", "f/d/e", "", "f/out", "->../other"), Placement{Source: "f", Target: from, Owner: &me, Parents: me}))
	must.Do(t, errors.Join(os.Mkdir(dir+"/other", 0o755), os.WriteFile(dir+"/other/o", []byte("o"), 0o600), unix.Chmod(dir+"/other/o", 0o4711), unix.Mkfifo(from+"/pipe", 0o600)))
	socket, err := net.Listen("unix", from+"/socket")
	must.Do(t, err)
	defer socket.Close()
	capability := []byte{1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	capable := unix.Setxattr(from+"/a", "security.capability", capability, 0) == nil
	move := func(source, target string) error {
		found, err := Find(source)
		if err != nil {
			return err
		}
		var archive bytes.Buffer
		if err := Pack(&archive, found); err != nil {
			return err
		}
		return Place(&archive, Placement{Target: target, Parents: me})
	}
	for source, want := range map[string]string{
		"from":      "a -rw-r----- a\nb -rw-r----- a\nd drwxr-x--- \nd/e -rw-r----- \nl Lrwxrwxrwx a\nout Lrwxrwxrwx ../other\n",
		"from/l":    "l -rw-r----- a\n",
		"from/[al]": "a -rw-r----- a\nl -rw-r----- a\n",
		"from/out":  "o urwx--x--x o\n",
		"fr*/d":     "e -rw-r----- \n",
		"none*":     "",
	} {
		to := t.TempDir()
		if err := move(dir+"/"+source, to+"/"); err != nil {
			t.Errorf("%s: %v", source, err)
		}
		if diff := cmp.Diff(want, tree(t, to)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", source, diff)
		}
		if source != "from" {
			continue
		}
		var a, b unix.Stat_t
		if err := errors.Join(unix.Stat(to+"/a", &a), unix.Stat(to+"/b", &b)); err != nil || a.Ino != b.Ino {
			t.Errorf("got the files %d and %d and error %v, want one with two names", a.Ino, b.Ino, err)
		}
		got := make([]byte, 64)
		if n, err := unix.Getxattr(to+"/a", "security.capability", got); capable && !bytes.Equal(got[:max(n, 0)], capability) {
			t.Errorf("got the capability %x and error %v, want %x", got[:max(n, 0)], err, capability)
		}
	}
	for source, want := range map[string]string{
		"none": "is not there: no such file", "from/[": "is no pattern", "from/a/b": "is not there: not a directory",
	} {
		if err := move(dir+"/"+source, dir+"/to/"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", source, err, want)
		}
	}
}

// TestSparse checks that the holes of a file take no space in its copy, and that the contents are
// equal.
func TestSparse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, tt := range map[string]struct {
		size  int64
		text  map[int64]string
		space int64 // maximum space that the copy takes
	}{
		"all of it":    {8 << 20, nil, 0},
		"at the end":   {8 << 20, map[int64]string{0: "text"}, 128 << 10},
		"at the start": {8 << 20, map[int64]string{8<<20 - 4: "text"}, 128 << 10},
		"between":      {8 << 20, map[int64]string{0: "some", 5 << 20: "text"}, 256 << 10},
		"one zero":     {1, nil, 4096},
	} {
		from := filepath.Join(dir, name)
		file, err := os.Create(from)
		must.Do(t, err)
		for at, text := range tt.text {
			_, err := file.WriteAt([]byte(text), at)
			must.Do(t, err)
		}
		must.Do(t, errors.Join(file.Truncate(tt.size), file.Close()))
		var archive bytes.Buffer
		to := filepath.Join(dir, "to", name)
		must.Do(t, errors.Join(Pack(&archive, []string{from}), Place(&archive, Placement{Target: to, Parents: me})))
		want, err := os.ReadFile(from)
		must.Do(t, err)
		if got, err := os.ReadFile(to); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: got %d bytes and error %v, want those of the file", name, len(got), err)
		}
		var stat unix.Stat_t
		if err := unix.Stat(to, &stat); err != nil || stat.Blocks*512 > tt.space {
			t.Errorf("%s: it takes %d bytes (error %v), want at most %d", name, stat.Blocks*512, err, tt.space)
		}
	}
}

// FuzzPlace searches for archives that write outside of the target.
func FuzzPlace(f *testing.F) {
	f.Add(packed(f, "a/", "", "a/b", "b", "a/l", "->../..", "a/l/x", "x").Bytes(), "a")
	f.Add(packed(f, "a", "->..", "a/b", "b").Bytes(), "")
	f.Add(packed(f, "../a", "x", "/b", "=>a").Bytes(), "*")
	f.Fuzz(func(t *testing.T, archive []byte, source string) {
		if len(archive) > 1<<16 {
			return
		}
		dir := t.TempDir()
		target := dir + "/to/here"
		_ = Place(bytes.NewReader(archive), Placement{Source: source, Target: target, Parents: me, Owner: &me})
		for parent, only := range map[string]string{dir: "to", dir + "/to": "here"} {
			entries, _ := os.ReadDir(parent)
			for _, e := range entries {
				if e.Name() != only {
					t.Errorf("%s was written", filepath.Join(parent, e.Name()))
				}
			}
		}
	})
}
