package volumes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/must"
)

// contentCalls are calls of a Content, with the result that each has if it succeeds. The volume has the files of
// prepare.
var contentCalls = map[string]struct {
	do   func(c *Content, dir string) error
	done func(c *Content) error
}{
	"read": {func(c *Content, _ string) error { return second(readAll(c, "d/e/file")) }, nil},
	"stat": {func(c *Content, _ string) error { return second(c.Stat("link")) }, nil},
	"list": {func(c *Content, _ string) error { return listed(c) }, listed},
	"attributes": {func(c *Content, _ string) error {
		mode := uint32(0o600)
		return second(c.SetAttributes("d/e/file", Attributes{Mode: &mode}))
	}, func(c *Content) error {
		e, err := c.Stat("d/e/file")
		if err == nil && e.Mode != 0o600 {
			err = fmt.Errorf("it has the mode %o", e.Mode)
		}
		return err
	}},
	"write": {func(c *Content, _ string) error {
		return second(c.Write("x/y/file", strings.NewReader("new"), Attributes{}, true))
	}, func(c *Content) error { return has(c, "x/y/file", "new") }},
	"replace": {func(c *Content, _ string) error {
		return second(c.Write("d/e/file", strings.NewReader("new"), Attributes{}, true))
	}, func(c *Content) error { return has(c, "d/e/file", "new") }},
	"write once": {func(c *Content, _ string) error {
		return second(c.Write("once", strings.NewReader("new"), Attributes{}, false))
	}, func(c *Content) error { return has(c, "once", "new") }},
	"directory": {func(c *Content, _ string) error { return second(c.MakeDir("x/y/z", Attributes{}, true)) }, func(c *Content) error {
		e, err := c.Stat("x/y/z")
		if err == nil && (e.Kind != Directory || e.Mode != defaultDirMode) {
			err = fmt.Errorf("got %+v", e)
		}
		return err
	}},
	"remove": {func(c *Content, _ string) error { return c.Remove(context.Background(), "d") }, func(c *Content) error {
		if _, err := c.Stat("d"); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("got %w, want that it is gone", err)
		}
		return nil
	}},
	"sweep": {func(c *Content, _ string) error { return sweep(context.Background(), c.dir) }, func(c *Content) error {
		if left := append(namesIn(c, newName), namesIn(c, removedName)...); len(left) > 0 {
			return fmt.Errorf("left are %q", left)
		}
		return nil
	}},
	"directories": {func(c *Content, dir string) error { return (&Registry{ids: c.ids}).makeDirectories(dir) }, nil},
}

func listed(c *Content) error {
	all, err := c.List(context.Background(), "/", 3)
	if err == nil && (len(all) != 4 || all[3].Target != "d") {
		err = fmt.Errorf("got %+v", all)
	}
	return err
}

func has(c *Content, name, want string) error {
	text, err := readAll(c, name)
	if err == nil && text != want {
		err = fmt.Errorf("%s has %q, want %q", name, text, want)
	}
	return err
}

func namesIn(c *Content, name string) (names []string) {
	all, _ := os.ReadDir(filepath.Join(c.dir, name))
	for _, one := range all {
		names = append(names, one.Name())
	}
	return names
}

// prepare writes a directory d with a file, and a link to d. It also writes an incomplete file and a removed directory,
// as a server leaves them that was killed.
func prepare(c *Content) error {
	ctx := context.Background()
	for _, name := range []string{"d", "x", "once", "link"} {
		if err := c.Remove(ctx, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return errors.Join(sweep(ctx, c.dir), second(c.Write("d/e/file", strings.NewReader("old"), Attributes{}, true)), os.Symlink("d", filepath.Join(c.dir, filesName, "link")),
		os.WriteFile(filepath.Join(c.dir, newName, "half"), nil, 0o600), os.MkdirAll(filepath.Join(c.dir, removedName, "old", "deep"), 0o700), os.WriteFile(filepath.Join(c.dir, removedName, "old", "file"), nil, 0o600))
}

// TestEachCallFails makes each system call of each call of a Content fail in turn. Either the error comes out, or the
// result is the same as without the failure. Nothing stays open, and the same call then succeeds.
func TestEachCallFails(t *testing.T) {
	t.Parallel()
	directoriesFail(t)
	mountsFail(t)
	for call, number := range map[string]uint32{
		"openat": unix.SYS_OPENAT, "newfstatat": unix.SYS_NEWFSTATAT, "fstat": unix.SYS_FSTAT, "getdents64": unix.SYS_GETDENTS64, "readlinkat": unix.SYS_READLINKAT, "mkdirat": unix.SYS_MKDIRAT,
		"renameat": unix.SYS_RENAMEAT, "unlinkat": unix.SYS_UNLINKAT, "linkat": unix.SYS_LINKAT, "fchownat": unix.SYS_FCHOWNAT, "fchmodat": unix.SYS_FCHMODAT, "lseek": unix.SYS_LSEEK,
	} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			c, _ := opened(t)
			before := openBelow(t, c.dir)
			for what, tt := range contentCalls {
				for n, failed := 1, true; failed; n++ {
					must.Do(t, prepare(c))
					dir := t.TempDir()
					var err error
					failed, err = calltest.FailNth(t, number, n, unix.EIO, func() error { return tt.do(c, dir) })
					if err != nil && (!failed || !errors.Is(err, unix.EIO)) {
						t.Errorf("%s: call %d failed, %v: got %v", what, n, failed, err)
					}
					if diff := cmp.Diff(before, openBelow(t, c.dir)); diff != "" {
						t.Errorf("%s: call %d failed (-open before +after):\n%s", what, n, diff)
					}
					if err != nil { // what was done before the failure remains
						if err = tt.do(c, dir); errors.Is(err, fs.ErrExist) && what == "write once" || errors.Is(err, fs.ErrNotExist) && what == "remove" {
							err = nil
						}
					}
					if err == nil && tt.done != nil {
						err = tt.done(c)
					}
					if err != nil {
						t.Errorf("%s: after call %d had failed, %v: %v", what, n, failed, err)
					}
				}
			}
		})
	}
}

// directoriesFail checks that the steps of a change pass on why a directory could not be opened,
// inspected or made, and return nothing else.
func directoriesFail(t *testing.T) {
	t.Helper()
	c, dir := opened(t)
	if made, err := c.makeIn("missing", "below", Attributes{}); made != nil || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("below a missing directory: got %v and error %v, want %v", made, err, fs.ErrNotExist)
	}
	parent, err := os.Open(dir)
	must.Do(t, err)
	must.Do(t, parent.Close())
	for _, force := range []bool{false, true} {
		if owner, mode, err := c.replaced(parent, "name", force); !errors.Is(err, unix.EBADF) {
			t.Errorf("in a closed directory, force %v: got %v, %#o and error %v, want %v", force, owner, mode, err, unix.EBADF)
		}
	}
	if err := (&Registry{}).makeDirectories(filepath.Join(dir, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("directories in a missing one: got error %v, want %v", err, fs.ErrNotExist)
	}
	staged := filepath.Join(c.dir, newName, "staged")
	must.Do(t, errors.Join(os.WriteFile(staged, nil, 0o600), os.Mkdir(filepath.Join(dir, "dir"), 0o700)))
	in, err := os.Open(dir)
	must.Do(t, err)
	defer in.Close()
	must.Is(t, publish(staged, in, "dir", true), ErrIsDir)
	must.Do(t, errors.Join(os.Remove(staged), os.Remove(filepath.Join(dir, "dir"))))
	s := openStore(t, t.TempDir())
	made, err := s.NewDir()
	must.Do(t, err)
	_, err = s.Put(store.Volumes, "1", []byte(`{"Version":1,"Name":"a"}`), made)
	must.Do(t, err)
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	New(Options{Store: s, Logger: logger}) // the volume lacks the directory of removed files
	must.Do(t, s.Close())
	New(Options{Store: s, Logger: logger})
	for _, want := range []string{"is not all gone", "volumes that cannot be read"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("got the log %s, want %q", &log, want)
		}
	}
	heap, err := os.Open(dir)
	must.Do(t, err)
	defer heap.Close()
	must.Do(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	for name, want := range map[string]error{"missing": unix.ENOENT, "file": unix.ENOTDIR} {
		if moved, err := empty(t.Context(), heap, name); moved != nil || !errors.Is(err, want) {
			t.Errorf("empty %s: got %v and error %v, want %v", name, moved, err, want)
		}
	}
}

// mountsFail checks that the errors of mounts name what failed, and where.
func mountsFail(t *testing.T) {
	t.Helper()
	var m mounts
	defer m.end()
	dir := t.TempDir()
	root, err := os.Open(dir)
	must.Do(t, err)
	defer root.Close()
	made, err := m.clone(root, "missing")
	if made != nil || err == nil {
		t.Errorf("a clone of nothing: got %v and error %v", made, err)
	}
	if strings.Contains(fmt.Sprint(err), "make a mount namespace") {
		return // this process may not
	}
	want := func(err error, op, at string, is error) {
		t.Helper()
		failed, _ := errors.AsType[*fs.PathError](err)
		if failed == nil || !strings.Contains(failed.Op, op) || failed.Path != at || !errors.Is(err, is) {
			t.Errorf("got error %v, want %v of %s %s", err, is, op, at)
		}
	}
	want(err, "clone", "missing", unix.ENOENT)
	again, err := os.Open(dir)
	must.Do(t, err)
	want(m.unmount(again, dir), "unmount", dir, unix.EINVAL)
	if again.Close() == nil {
		t.Error("the root is open after an unmount")
	}
	if lacksForSizes() != nil {
		return
	}
	image := filepath.Join(dir, "image")
	must.Do(t, os.WriteFile(image, make([]byte, 1<<20), 0o600))
	mounted, err := m.mount(image, dir)
	want(err, "mount /dev/loop", dir, unix.EINVAL)
	if mounted != nil {
		t.Error("something was mounted")
	}
}

// TestOwnerThatIsRefused checks that a new directory or file is not returned if its owner could not
// be set.
func TestOwnerThatIsRefused(t *testing.T) {
	t.Parallel()
	c, dir := opened(t)
	must.Do(t, os.Chmod(dir, 0o777)) //nolint:gosec // the thread below creates entries as another user
	parent, err := os.Open(dir)
	must.Do(t, err)
	defer parent.Close()
	c.ids = ids{}
	root := uint32(0)
	a := Attributes{UID: &root, GID: &root}
	ended := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine, and its user with it
		if os.Geteuid() == 0 {
			_ = unix.Setfsuid(1000) // the thread loses the right to change owners
		}
		made, _, err := c.makeDir(parent, "made", a)
		if made != nil {
			err = errors.Join(errors.New("a directory was returned"), made.Close())
		}
		ended <- err
	}()
	must.Is(t, <-ended, fs.ErrPermission)
}
