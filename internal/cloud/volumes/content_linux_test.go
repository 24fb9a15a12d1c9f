package volumes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
)

// opened returns the content of a new volume, and the directory with its files.
func opened(t *testing.T) (*Content, string) {
	t.Helper()
	r := open(openStore(t, t.TempDir()))
	v := create(t, r, "1", "data")
	c, err := r.Open(v.ID)
	must.Do(t, err)
	t.Cleanup(c.Close)
	return c, filepath.Join(c.dir, filesName)
}

func write(t *testing.T, r *Registry, id, name, text string) {
	t.Helper()
	c, err := r.Open(id)
	must.Do(t, err)
	defer c.Close()
	_, err = c.Write(name, strings.NewReader(text), Attributes{}, true)
	must.Do(t, err)
}

func wantFile(t *testing.T, r *Registry, id, name, want string) {
	t.Helper()
	c, err := r.Open(id)
	must.Do(t, err)
	defer c.Close()
	if got, err := readAll(c, name); err != nil || got != want {
		t.Errorf("%s: got %q and error %v, want %q", name, got, err, want)
	}
}

func readAll(c *Content, name string) (string, error) {
	file, _, err := c.Read(name)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(file)
	return string(text), errors.Join(err, file.Close())
}

func TestContent(t *testing.T) {
	t.Parallel()
	c, _ := opened(t)
	text := func(s string) io.Reader { return strings.NewReader(s) }
	owner := func(asked Owner) Owner {
		if c.ids.one { // in any case
			return Owner{0, 0}
		}
		return asked
	}
	steps := []struct {
		what string
		do   func() (Entry, error)
		want Entry
		err  error
	}{
		{"the root", func() (Entry, error) { return c.Stat("/") }, Entry{Path: "/", Kind: Directory, Mode: 0o755, Owner: owner(DefaultOwner)}, nil},
		{"write", func() (Entry, error) { return c.Write("a", text("one"), Attributes{}, false) }, Entry{Path: "/a", Kind: File, Size: 3, Mode: 0o644, Owner: owner(DefaultOwner)}, nil},
		{"write again", func() (Entry, error) { return c.Write("/a", text("two"), Attributes{}, false) }, Entry{}, fs.ErrExist},
		{"attributes", func() (Entry, error) {
			return c.SetAttributes("/a", Attributes{Mode: new(uint32(0o4750)), UID: new(uint32(7))})
		}, Entry{Path: "/a", Kind: File, Size: 3, Mode: 0o4750, Owner: owner(Owner{7, DefaultOwner.GID})}, nil},
		{"replace", func() (Entry, error) { return c.Write("/a", text("other"), Attributes{GID: new(uint32(8))}, true) }, Entry{Path: "/a", Kind: File, Size: 5, Mode: 0o4750, Owner: owner(Owner{7, 8})}, nil},
		{"write elsewhere", func() (Entry, error) { return c.Write("d/e/f", text(""), Attributes{}, false) }, Entry{}, fs.ErrNotExist},
		{"make parents", func() (Entry, error) {
			return c.Write("../d/./e//f", text("x"), Attributes{Mode: new(uint32(0)), UID: new(uint32(9))}, true)
		}, Entry{Path: "/d/e/f", Kind: File, Size: 1, Owner: owner(Owner{9, DefaultOwner.GID})}, nil},
		{"a parent", func() (Entry, error) { return c.Stat("d/e") }, Entry{Path: "/d/e", Kind: Directory, Mode: 0o755, Owner: owner(Owner{9, DefaultOwner.GID})}, nil},
		{"write to a directory", func() (Entry, error) { return c.Write("d", text(""), Attributes{}, true) }, Entry{}, ErrIsDir},
		{"write to the root", func() (Entry, error) { return c.Write("/", text(""), Attributes{}, true) }, Entry{}, ErrIsDir},
		{"below a file", func() (Entry, error) { return c.Write("a/b", text(""), Attributes{}, false) }, Entry{}, fs.ErrNotExist},
		{"make a directory", func() (Entry, error) { return c.MakeDir("g", Attributes{Mode: new(uint32(0o1700))}, false) }, Entry{Path: "/g", Kind: Directory, Mode: 0o1700, Owner: owner(DefaultOwner)}, nil},
		{"make it again", func() (Entry, error) { return c.MakeDir("g", Attributes{}, false) }, Entry{}, fs.ErrExist},
		{"make sure of it", func() (Entry, error) { return c.MakeDir("g", Attributes{}, true) }, Entry{Path: "/g", Kind: Directory, Mode: 0o1700, Owner: owner(DefaultOwner)}, nil},
		{"make the root", func() (Entry, error) { return c.MakeDir("/", Attributes{}, true) }, Entry{Path: "/", Kind: Directory, Mode: 0o755, Owner: owner(DefaultOwner)}, nil},
		{"make what is a file", func() (Entry, error) { return c.MakeDir("a", Attributes{}, true) }, Entry{}, fs.ErrExist},
		{"make in nothing", func() (Entry, error) { return c.MakeDir("h/i", Attributes{}, false) }, Entry{}, fs.ErrNotExist},
		{"make all", func() (Entry, error) { return c.MakeDir("h/i/j", Attributes{}, true) }, Entry{Path: "/h/i/j", Kind: Directory, Mode: 0o755, Owner: owner(DefaultOwner)}, nil},
		{"nothing", func() (Entry, error) { return c.Stat("nothing") }, Entry{}, fs.ErrNotExist},
		{"no path", func() (Entry, error) { return c.Stat("") }, Entry{}, ErrPath},
		{"a zero", func() (Entry, error) { return c.Stat("a\x00") }, Entry{}, ErrPath},
		{"a long name", func() (Entry, error) { return c.Write(strings.Repeat("n", 256), text(""), Attributes{}, true) }, Entry{}, ErrPath},
		{"a long path", func() (Entry, error) { return c.MakeDir(strings.Repeat("n/", 2049), Attributes{}, true) }, Entry{}, ErrPath},
		{"a large id", func() (Entry, error) { return c.Write("k", text(""), Attributes{UID: new(uint32(1 << 16))}, true) }, Entry{}, ErrAttributes},
		{"a large mode", func() (Entry, error) { return c.SetAttributes("a", Attributes{Mode: new(uint32(0o10000))}) }, Entry{}, ErrAttributes},
	}
	for _, step := range steps {
		got, err := step.do()
		if err == nil && (got.Accessed.IsZero() || got.Modified.IsZero() || got.Changed.IsZero()) {
			t.Errorf("%s: got %+v, want times", step.what, got)
		}
		got.Accessed, got.Modified, got.Changed = step.want.Accessed, step.want.Modified, step.want.Changed
		if got.Kind == Directory {
			got.Size = 0 // as the file system counts it
		}
		if !errors.Is(err, step.err) || got != step.want {
			t.Errorf("%s: got %+v and error %v, want %+v and %v", step.what, got, err, step.want, step.err)
		}
	}
	for name, want := range map[string]string{"a": "other", "d": "", "nothing": ""} {
		if got, err := readAll(c, name); got != want || (err == nil) != (want != "") {
			t.Errorf("read %s: got %q and error %v, want %q", name, got, err, want)
		}
	}
	wantList(t, c, "/", 1, "/a", "/d", "/g", "/h")
	wantList(t, c, "d", 1, "/d/e")
	wantList(t, c, "/", 2, "/a", "/d", "/d/e", "/g", "/h", "/h/i")
	wantList(t, c, "/", 99, "/a", "/d", "/d/e", "/d/e/f", "/g", "/h", "/h/i", "/h/i/j")
	for name, want := range map[string]error{"a": ErrNotDir, "nothing": fs.ErrNotExist} {
		if _, err := c.List(t.Context(), name, 1); !errors.Is(err, want) {
			t.Errorf("list %s: got error %v, want %v", name, err, want)
		}
	}
	for _, remove := range []struct {
		name string
		want error
	}{{"d", nil}, {"a", nil}, {"a", fs.ErrNotExist}, {"/", fs.ErrNotExist}, {"g/../..", fs.ErrNotExist}, {"a/b", fs.ErrNotExist}} {
		if err := c.Remove(t.Context(), remove.name); !errors.Is(err, remove.want) {
			t.Errorf("remove %s: got error %v, want %v", remove.name, err, remove.want)
		}
	}
	wantList(t, c, "/", 1, "/g", "/h")
	wantNothingLeft(t, c)
}

func wantList(t *testing.T, c *Content, name string, depth int, want ...string) {
	t.Helper()
	entries, err := c.List(t.Context(), name, depth)
	var got []string
	for _, e := range entries {
		got = append(got, e.Path)
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("list %s with depth %d: got %q and error %v, want %q", name, depth, got, err, want)
	}
}

// wantNothingLeft checks that the volume has no incomplete and no removed files.
func wantNothingLeft(t *testing.T, c *Content) {
	t.Helper()
	for _, name := range []string{newName, removedName} {
		if left, err := os.ReadDir(filepath.Join(c.dir, name)); err != nil || len(left) > 0 {
			t.Errorf("%s: got %v and error %v, want nothing", name, left, err)
		}
	}
}

// TestWriteBreaks checks that no file is created from incomplete content, and that the file that it
// would replace stays.
func TestWriteBreaks(t *testing.T) {
	t.Parallel()
	c, _ := opened(t)
	broken := errors.New("broken")
	for _, before := range []string{"", "old"} {
		if before != "" {
			_, err := c.Write("a", strings.NewReader(before), Attributes{}, true)
			must.Do(t, err)
		}
		r := io.MultiReader(strings.NewReader("new"), errorReader{broken})
		if _, err := c.Write("a", r, Attributes{}, true); !errors.Is(err, broken) {
			t.Errorf("got error %v, want %v", err, broken)
		}
		if got, err := readAll(c, "a"); got != before || (err == nil) != (before != "") {
			t.Errorf("got %q and error %v, want %q", got, err, before)
		}
	}
	wantNothingLeft(t, c)
}

type errorReader struct{ err error }

func (r errorReader) Read([]byte) (int, error) { return 0, r.err }

// TestHostileContent checks that no file that a sandbox can create leads out of its volume, or
// makes the server wait.
func TestHostileContent(t *testing.T) {
	t.Parallel()
	c, dir := opened(t)
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	at := func(name string) string { return filepath.Join(dir, name) }
	long := strings.Repeat("t/", maxPath/2)[:maxPath-1] // no target is longer
	err := errors.Join(
		os.Symlink(long, at("longlink")),
		os.WriteFile(secret, []byte("secret"), 0o600),
		os.Symlink(secret, at("link")),
		os.Symlink(outside, at("dirlink")),
		os.Symlink("../../../../../..", at("up")),
		os.Symlink("loop", at("loop")),
		os.Symlink("nowhere", at("dangling")),
		os.WriteFile(at("inside"), []byte("inside"), 0o600),
		os.Symlink("inside", at("inner")),
		unix.Mkfifo(at("pipe"), 0o666),
		os.WriteFile(at("\xff\n\x1b"), nil, 0o600),
		os.WriteFile(at("sparse"), nil, 0o600), os.Truncate(at("sparse"), 1<<40),
	)
	must.Do(t, err)
	socket, err := listen(at("socket"))
	must.Do(t, err)
	defer unix.Close(socket)
	for name, want := range map[string]error{
		"link": ErrPath, "dirlink/secret": ErrPath, "up": ErrPath, "up/etc/passwd": ErrPath, "loop": ErrPath, "dangling": fs.ErrNotExist,
		"pipe": ErrNotFile, "socket": ErrNotFile, "inner": nil,
	} {
		if got, err := readAll(c, name); !errors.Is(err, want) || strings.Contains(got, "secret") {
			t.Errorf("read %s: got %q and error %v, want %v", name, got, err, want)
		}
	}
	for name, want := range map[string]Entry{
		"link": {Kind: Symlink, Target: secret}, "dirlink": {Kind: Symlink, Target: outside}, "loop": {Kind: Symlink, Target: "loop"}, "longlink": {Kind: Symlink, Target: long},
		"pipe": {Kind: Other}, "socket": {Kind: Other}, "sparse": {Kind: File, Size: 1 << 40}, "\xff\n\x1b": {Kind: File},
	} {
		got, err := c.Stat(name)
		if got.Kind != File {
			got.Size = want.Size
		}
		if err != nil || got.Kind != want.Kind || got.Target != want.Target || got.Size != want.Size {
			t.Errorf("stat %q: got %+v and error %v, want %+v", name, got, err, want)
		}
	}
	for _, name := range []string{"link", "dirlink/secret", "up/tmp"} {
		if _, err := c.SetAttributes(name, Attributes{Mode: new(uint32(0o777))}); err == nil {
			t.Errorf("change %s: got no error", name)
		}
	}
	for _, name := range []string{"dirlink/new", "up/tmp/new", "dirlink/a/new"} {
		if _, err := c.Write(name, strings.NewReader(""), Attributes{}, true); !errors.Is(err, ErrPath) {
			t.Errorf("write %s: got error %v, want %v", name, err, ErrPath)
		}
		if _, err := c.MakeDir(name, Attributes{}, true); !errors.Is(err, ErrPath) {
			t.Errorf("make %s: got error %v, want %v", name, err, ErrPath)
		}
	}
	if err := c.Remove(t.Context(), "dirlink/secret"); !errors.Is(err, ErrPath) {
		t.Errorf("remove through a link: got error %v, want %v", err, ErrPath)
	}
	if entries, err := c.List(t.Context(), "/", 99); err != nil || len(entries) != 12 {
		t.Errorf("list: got %d entries and error %v, want 12", len(entries), err)
	}
	// Calls that replace or remove a link, or a pipe, change the link or pipe itself.
	for _, name := range []string{"link", "pipe"} {
		if _, err := c.Write(name, strings.NewReader("mine"), Attributes{}, true); err != nil {
			t.Errorf("replace %s: %v", name, err)
		}
		if got, err := readAll(c, name); got != "mine" || err != nil {
			t.Errorf("replaced %s: got %q and error %v, want it replaced", name, got, err)
		}
	}
	for _, name := range []string{"dirlink", "up", "loop", "socket"} {
		if err := c.Remove(t.Context(), name); err != nil {
			t.Errorf("remove %s: %v", name, err)
		}
	}
	text, err := os.ReadFile(secret)
	info, _ := os.Stat(secret)
	left, _ := os.ReadDir(outside)
	if string(text) != "secret" || err != nil || info.Mode() != 0o600 || len(left) != 1 {
		t.Errorf("outside: got %q, %v, %v, %v, want it untouched", text, err, info.Mode(), left)
	}
}

// listen creates a socket at a path that may be longer than the address of a socket.
func listen(path string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	defer dir.Close()
	short := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))
	return fd, unix.Bind(fd, &unix.SockaddrUnix{Name: short})
}

// TestRenameGames checks that the server never leaves the volume while a sandbox exchanges
// directories with links.
func TestRenameGames(t *testing.T) {
	t.Parallel()
	c, dir := opened(t)
	outside := t.TempDir()
	secret := filepath.Join(outside, "f")
	must.Do(t, errors.Join(
		os.WriteFile(secret, []byte("secret"), 0o600),
		os.Mkdir(filepath.Join(dir, "x"), 0o755), os.WriteFile(filepath.Join(dir, "x", "f"), []byte("x"), 0o644),
		os.Symlink(outside, filepath.Join(dir, "y")),
		os.Mkdir(filepath.Join(dir, "d"), 0o755), os.Symlink(secret, filepath.Join(dir, "d", "link")), os.WriteFile(filepath.Join(dir, "d", "file"), nil, 0o644),
	))
	ctx, cancel := context.WithCancel(t.Context())
	var sandbox sync.WaitGroup
	for _, pair := range [][2]string{{"x", "y"}, {"d/link", "d/file"}} {
		sandbox.Go(func() {
			for ctx.Err() == nil {
				_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, pair[0]), unix.AT_FDCWD, filepath.Join(dir, pair[1]), unix.RENAME_EXCHANGE)
			}
		})
	}
	for n := range 2000 {
		if text, err := readAll(c, "x/f"); err == nil && strings.Contains(text, "secret") {
			t.Fatal("a file outside was read")
		}
		_, _ = c.Write("x/f", strings.NewReader(fmt.Sprint(n)), Attributes{}, true)
		_, _ = c.Write("x/g", strings.NewReader(""), Attributes{}, true)
		_, _ = c.MakeDir("x/h/i", Attributes{}, true)
		_, _ = c.SetAttributes("x/f", Attributes{Mode: new(uint32(0o777))})
		_, _ = c.SetAttributes("d/file", Attributes{Mode: new(uint32(0o777))})
		_, _ = c.SetAttributes("d/link", Attributes{Mode: new(uint32(0o777))})
		_, _ = c.List(t.Context(), "/", 9)
		_ = c.Remove(t.Context(), "x/h")
		_ = c.Remove(t.Context(), "x/g")
	}
	cancel()
	sandbox.Wait()
	text, err := os.ReadFile(secret)
	info, statErr := os.Stat(secret)
	left, listErr := os.ReadDir(outside)
	must.Do(t, cmp.Or(err, statErr, listErr))
	if string(text) != "secret" || info.Mode() != 0o600 || len(left) != 1 {
		t.Errorf("outside: got %q, %v, %v, want it untouched", text, info.Mode(), left)
	}
}

// TestRemoveDeep checks that Remove removes a tree that is deeper than the limits of paths and of
// open files, and whose modes lock out its owner. Meanwhile, links take the place of its
// directories.
func TestRemoveDeep(t *testing.T) {
	t.Parallel()
	c, dir := opened(t)
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	deep := filepath.Join(dir, "deep")
	err := errors.Join(os.WriteFile(secret, nil, 0o640), os.Chmod(outside, 0o750), os.Mkdir(deep, 0o700))
	for n := range 1500 {
		err = errors.Join(err, os.Mkdir(deep+"er", 0o700), os.Rename(deep, filepath.Join(deep+"er", "deeper")), os.Rename(deep+"er", deep))
		if n%500 == 0 {
			err = errors.Join(err, os.Symlink(outside, filepath.Join(deep, "link")), os.WriteFile(filepath.Join(deep, "file"), nil, 0), os.Mkdir(filepath.Join(deep, "locked"), 0))
		}
	}
	held, openErr := os.Open(deep) // as a sandbox's working directory
	err = errors.Join(err, openErr)
	must.Do(t, err)
	defer held.Close()
	must.Do(t, os.Chmod(deep, 0o500))
	ctx, cancel := context.WithCancel(t.Context())
	var sandbox sync.WaitGroup
	sandbox.Go(func() {
		for ctx.Err() == nil {
			_ = unix.Symlinkat(outside, int(held.Fd()), "swap")
			_ = unix.Renameat2(int(held.Fd()), "swap", int(held.Fd()), "locked", unix.RENAME_EXCHANGE)
		}
	})
	err = c.Remove(t.Context(), "deep")
	cancel()
	sandbox.Wait()
	must.Do(t, err)
	wantList(t, c, "/", 1)
	wantNothingLeft(t, c)
	file, _ := os.Stat(secret)
	around, _ := os.Stat(outside)
	if file == nil || file.Mode().Perm() != 0o640 || around.Mode().Perm() != 0o750 {
		t.Errorf("outside: got %v in %v, want it untouched", file, around)
	}
}

// TestSweep checks that incomplete and removed files of a killed server are deleted at the next
// start.
func TestSweep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openStore(t, dir)
	c, err := func() (*Content, error) {
		r := open(s)
		create(t, r, "1", "data")
		return r.Open("1")
	}()
	must.Do(t, err)
	removed := filepath.Join(c.dir, removedName, "a")
	must.Do(t, errors.Join(
		os.WriteFile(filepath.Join(c.dir, newName, "a"), nil, 0o600),
		os.MkdirAll(filepath.Join(removed, "b", "c"), 0o700), os.WriteFile(filepath.Join(removed, "b", "d"), nil, 0), os.Chmod(removed, 0),
	))
	r := open(s)
	wantNothingLeft(t, c)
	c.Close()
	if len(r.List()) != 1 {
		t.Errorf("got %v, want the volume", r.List())
	}
}
