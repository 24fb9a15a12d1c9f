//go:build linux

package saved

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
)

func write(t testing.TB, w io.Writer, dir string) error {
	t.Helper()
	f, err := os.Open(dir)
	must.Do(t, err)
	defer f.Close()
	return Write(w, "test", []Section{{Dir: f, Skip: []string{"skipped"}}})
}

// read reads data into a new directory, as files of this process's user.
func read(t testing.TB, data []byte) (dir string, err error) {
	t.Helper()
	return readAs(t, data, true)
}

func readAs(t testing.TB, data []byte, owned bool) (dir string, err error) {
	t.Helper()
	parent := t.TempDir()
	dir = filepath.Join(parent, "to")
	links := filepath.Join(parent, "links")
	must.Do(t, errors.Join(os.Mkdir(dir, 0o700), os.Mkdir(links, 0o700)))
	l, err := os.Open(links)
	must.Do(t, err)
	defer l.Close()
	err = Read(bytes.NewReader(data), Options{Layout: "test", Links: l, Owned: owned, Place: func(string) (Place, error) {
		f, err := os.Open(dir)
		return Place{Dir: f}, err
	}})
	if entries, _ := os.ReadDir(links); err == nil && len(entries) > 0 {
		t.Errorf("links are left: %v", entries)
	}
	return dir, err
}

// sample makes a directory with a few files.
func sample(t testing.TB) (dir string) {
	t.Helper()
	dir = t.TempDir()
	err := errors.Join(
		os.WriteFile(filepath.Join(dir, "file"), []byte("content"), 0o640),
		os.Mkdir(filepath.Join(dir, "sub"), 0o750),
		os.Link(filepath.Join(dir, "file"), filepath.Join(dir, "sub", "name")),
		os.Link(filepath.Join(dir, "file"), filepath.Join(dir, "skipped")),
		os.Symlink("/etc/passwd", filepath.Join(dir, "link")),
		unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600),
	)
	must.Do(t, err)
	return dir
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	var data bytes.Buffer
	must.Do(t, write(t, &data, sample(t)))
	dir, err := read(t, data.Bytes())
	must.Do(t, err)
	var again bytes.Buffer
	text, err := os.ReadFile(filepath.Join(dir, "sub", "name"))
	if err != nil || string(text) != "content" {
		t.Errorf("got %q, %v", text, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "skipped")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was to be left out: got %v", err)
	}
	if err := write(t, &again, dir); err != nil || again.Len() < 100 {
		t.Errorf("got %d bytes, %v", again.Len(), err)
	}
}

// TestSetIDs checks that the set-id bits of files that now belong to this process's user give no
// other user that user's rights.
func TestSetIDs(t *testing.T) {
	t.Parallel()
	from := sample(t)
	for name, mode := range map[string]uint32{"file": 0o6755, "sub": 0o2750, "fifo": 0o4600} {
		must.Do(t, unix.Chmod(filepath.Join(from, name), mode))
	}
	var data bytes.Buffer
	must.Do(t, write(t, &data, from))
	dir, err := read(t, data.Bytes())
	must.Do(t, err)
	for name, want := range map[string]uint32{"file": 0o755, "sub": 0o750, "fifo": 0o600} {
		var stat unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, name), &stat); err != nil || stat.Mode&0o7777 != want {
			t.Errorf("%s has the mode %o, want %o; %v", name, stat.Mode&0o7777, want, err)
		}
	}
}

// TestFullDisk checks that an error of the disk says where it happened, and that the
// directory can be read into again afterwards.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "big"), make([]byte, 4<<20), 0o600))
	if err := write(t, full{}, dir); !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "big") {
		t.Errorf("got %v, want %v of big", err, unix.ENOSPC)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, unix.ENOSPC }

// TestDeep checks the bound on the depth, and that the error names the file over it.
func TestDeep(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		depth int
		fails bool
	}{{maxDepth, false}, {maxDepth + 1, true}} {
		top := t.TempDir()
		dir, err := os.Open(top)
		must.Do(t, err)
		for range tt.depth {
			must.Do(t, unix.Mkdirat(int(dir.Fd()), "d", 0o700))
			fd, err := unix.Openat(int(dir.Fd()), "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
			must.Do(t, err)
			dir.Close()
			dir = os.NewFile(uintptr(fd), "d")
		}
		dir.Close()
		var data bytes.Buffer
		err = write(t, &data, top)
		if (err != nil) != tt.fails {
			t.Errorf("%d directories: got %v, want an error: %v", tt.depth, err, tt.fails)
		}
		if err == nil {
			if _, err := read(t, data.Bytes()); err != nil {
				t.Errorf("%d directories: %v", tt.depth, err)
			}
		}
	}
}

// TestHostileNames checks that a name never leads out of the directory.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", ".", "..", "../up", "/etc/passwd", "a/b", "zero\x00"} {
		for _, k := range []kind{directory, regular, symlink, fifo, whiteout, again} {
			var data bytes.Buffer
			e := forge(&data)
			e.record(&record{kind: k, name: name, target: "x", link: 1, names: 2})
			must.Do(t, e.finish())
			if _, err := read(t, data.Bytes()); !errors.Is(err, ErrDamaged) {
				t.Errorf("%c %q: got %v, want %v", k, name, err, ErrDamaged)
			}
		}
	}
}

// TestThroughLink checks that a directory that is a link is not entered.
func TestThroughLink(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	var data bytes.Buffer
	e := forge(&data)
	e.record(&record{kind: symlink, name: "d", target: outside})
	e.record(&record{kind: directory, name: "d"})
	e.record(&record{kind: regular, name: "f", size: 0})
	e.extent(0, 0)
	e.record(&record{kind: leave})
	e.record(&record{kind: leave})
	must.Do(t, e.finish())
	if _, err := read(t, data.Bytes()); err == nil {
		t.Error("it was entered")
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		t.Errorf("outside there are %v, %v", entries, err)
	}
}

// forge begins a file that Write would not write.
func forge(w io.Writer) *encoder {
	e := newEncoder(w)
	e.bytes([]byte(magic))
	e.text("test")
	e.record(&record{kind: section, mode: 0o700})
	return e
}

// FuzzRead checks that Read ends for every input, and makes no file outside.
func FuzzRead(f *testing.F) {
	var data bytes.Buffer
	must.Do(f, write(f, &data, sample(f)))
	f.Add(data.Bytes())
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir, err := read(t, data)
		if entries, _ := os.ReadDir(filepath.Dir(dir)); len(entries) != 2 {
			t.Errorf("there are %v, %v", entries, err)
		}
	})
}

// TestOverlayAttributes checks that only marks that an overlay may write are read as such,
// and that a program's attribute of the same name is again a program's without an overlay.
func TestOverlayAttributes(t *testing.T) {
	t.Parallel()
	from := t.TempDir()
	if err := unix.Setxattr(from, "user.overlay.redirect", []byte("/mine"), 0); err != nil {
		t.Skipf("no attributes here: %v", err)
	}
	var written bytes.Buffer
	must.Do(t, write(t, &written, from))
	var forged bytes.Buffer
	e := newEncoder(&forged)
	e.bytes([]byte(magic))
	e.text("test")
	e.record(&record{kind: section, mode: 0o700, attrs: []attr{
		{"user.overlay.redirect", "/etc"}, {"user.overlay.metacopy", ""}, {"user.overlay.opaque", "x"}, {"user.overlay.overlay.kept", "1"}, {"user.other", "2"},
	}})
	e.record(&record{kind: whiteout, name: "gone"})
	e.record(&record{kind: leave})
	must.Do(t, e.finish())
	for name, tt := range map[string]struct {
		data  []byte
		plain bool
		want  string
	}{
		"what a program set, in a layer": {written.Bytes(), false, "user.overlay.overlay.redirect"},
		"what a program set, elsewhere":  {written.Bytes(), true, "user.overlay.redirect"},
		"forged, in a layer":             {forged.Bytes(), false, "user.other user.overlay.origin user.overlay.overlay.kept"},
		"forged, elsewhere":              {forged.Bytes(), true, "user.other user.overlay.kept"},
	} {
		dir, links := t.TempDir(), t.TempDir()
		l, err := os.Open(links)
		must.Do(t, err)
		defer l.Close()
		err = Read(bytes.NewReader(tt.data), Options{Layout: "test", Links: l, Owned: true, Place: func(string) (Place, error) {
			f, err := os.Open(dir)
			return Place{Dir: f, Plain: tt.plain}, err
		}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		list := make([]byte, 1<<10)
		n, err := unix.Listxattr(dir, list)
		must.Do(t, err)
		names := strings.Split(strings.TrimSuffix(string(list[:n]), "\x00"), "\x00")
		slices.Sort(names)
		if got := strings.Join(names, " "); got != tt.want {
			t.Errorf("%s: got %s, want %s", name, got, tt.want)
		}
	}
}
