package volumes

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/cloud/store/storetest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// sized returns the volumes of a store, in which new volumes have a size. It skips the test if this
// machine does not support volumes with a size.
func sized(t *testing.T, s *store.Store, size int64) *Registry {
	t.Helper()
	r := New(Options{Store: s, OneID: os.Geteuid() != 0, Size: size})
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	err := r.CheckSize(t.Context())
	switch lacks := lacksForSizes(); {
	case err != nil && (lacks != nil || errors.Is(err, fs.ErrPermission)):
		t.Skipf("volumes with a size do not work here: %v", errors.Join(err, lacks))
	case err != nil:
		t.Fatalf("this machine has all that volumes with a size need: %v", err)
	}
	return r
}

// lacksForSizes returns an error that names the part that this machine lacks for volumes with a
// size. It does not use the tested code.
func lacksForSizes() error {
	if os.Geteuid() != 0 {
		return errors.New("this user is not root")
	}
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/sbin") {
		if _, err := os.Stat(filepath.Join(dir, "mkfs."+imageType)); err == nil {
			return control.Close()
		}
	}
	return errors.Join(errors.New("there is no mkfs."+imageType), control.Close())
}

// zeros returns a reader of n zero bytes.
func zeros(n int64) io.Reader { return io.LimitReader(zero{}, n) }

type zero struct{}

func (zero) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func put(t *testing.T, r *Registry, id, name string, n int64) error {
	t.Helper()
	c, err := r.Open(id)
	must.Do(t, err)
	defer c.Close()
	_, err = c.Write(name, zeros(n), Attributes{}, true)
	return err
}

// TestSize checks that a volume cannot exceed its size, and works again when space is free.
func TestSize(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openStore(t, dir)
	r := sized(t, s, MinSize)
	v := create(t, r, "1", "small")
	must.Do(t, put(t, r, v.ID, "first", MinSize/4))
	if err := put(t, r, v.ID, "second", MinSize); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("more than the size: got error %v, want %v", err, syscall.ENOSPC)
	}
	if err := put(t, r, v.ID, "third", MinSize/4); err != nil {
		t.Errorf("what fits after it: %v", err)
	}
	c, err := r.Open(v.ID)
	must.Do(t, err)
	defer c.Close()
	entries, err := c.List(t.Context(), "/", 1)
	if err != nil || len(entries) != 2 {
		t.Errorf("got %v and error %v, want the two files that fit, and nothing of the file system's own", entries, err)
	}
}

// TestSizeStays checks that one store can contain volumes with and without a size, and that volumes
// keep their sizes whatever the options of the next process.
func TestSizeStays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openStore(t, dir)
	bounded := sized(t, s, MinSize)
	create(t, bounded, "1", "small")
	write(t, bounded, "1", "kept", "text")
	mode := uint32(0o1777)
	c, err := bounded.Open("1")
	must.Do(t, err)
	if _, err := c.SetAttributes("/", Attributes{Mode: &mode}); err != nil {
		t.Error(err)
	}
	c.Close()
	if err := errors.Join(bounded.Close(), bounded.Close()); err != nil { // twice
		t.Fatal(err)
	}
	wantNoDevice(t, dir)

	unbounded := sized(t, s, 0)
	create(t, unbounded, "2", "large")
	wantFile(t, unbounded, "1", "kept", "text")
	c, err = unbounded.Open("1")
	must.Do(t, err)
	defer c.Close()
	if e, err := c.Stat("/"); err != nil || e.Mode != mode || e.Owner != DefaultOwner {
		t.Errorf("the root after a restart: got %+v and error %v, want mode %#o of %v", e, err, mode, DefaultOwner)
	}
	if err := put(t, unbounded, "2", "file", 2*MinSize); err != nil {
		t.Errorf("a volume without a size: %v", err)
	}
	if err := put(t, unbounded, "1", "file", 2*MinSize); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a volume with a size: got error %v, want %v", err, syscall.ENOSPC)
	}
	found, err := Survey(t.Context(), dir)
	if err != nil || found.Count != 2 || found.Sized != 1 || found.Bytes < 2*MinSize {
		t.Errorf("got %+v and error %v, want two volumes, one of them with a size", found, err)
	}
}

// TestSizeLeavesNothing checks that no mount of a volume is visible outside, and that nothing of a
// deleted volume is left.
func TestSizeLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := sized(t, openStore(t, dir), MinSize)
	create(t, r, "1", "a")
	held, release, err := r.Hold("1")
	must.Do(t, err)
	if text, err := os.ReadFile("/proc/self/mountinfo"); err != nil || bytes.Contains(text, []byte(dir)) {
		t.Errorf("got mounts %s and error %v, want none in %s", text, err, dir)
	}
	clone, err := held.Clone()
	must.Do(t, err)
	var stat unix.Stat_t
	if err := unix.Fstat(int(clone.Fd()), &stat); err != nil || stat.Uid != DefaultOwner.UID {
		t.Errorf("the clone: got %+v and error %v, want the directory with the files", stat, err)
	}
	if err := clone.Close(); err != nil {
		t.Error(err)
	}
	release()
	must.Do(t, r.Delete("1", never))
	wantNoDevice(t, dir)
	if left, err := filepath.Glob(filepath.Join(dir, "files", "*")); err != nil || len(left) > 0 {
		t.Errorf("got %v and error %v, want nothing of the deleted volume", left, err)
	}
}

// TestSizeKeepsNothingOpen checks that only the root of the file system is open for a mounted
// volume, and nothing for an unmounted one. No attempt to take a loop device leaves it open, even
// if several attempts are made at once.
func TestSizeKeepsNothingOpen(t *testing.T) { //nolint:paralleltest // it counts the open files of this process
	dir := t.TempDir()
	r := sized(t, openStore(t, dir), MinSize)
	create(t, r, "1", "a")
	loops := func() (open []string) {
		all, err := filepath.Glob("/proc/self/fd/*")
		must.Do(t, err)
		for _, file := range all {
			if name, err := os.Readlink(file); err == nil && strings.HasPrefix(name, "/dev/loop") {
				open = append(open, name)
			}
		}
		return open
	}
	_, release, err := r.Hold("1")
	must.Do(t, err)
	if open := loops(); len(open) > 0 {
		t.Errorf("while it is mounted %v are open", open)
	}
	release()
	must.Do(t, r.leave(r.byID["1"]))
	wantNoDevice(t, dir)
	image := filepath.Join(r.byID["1"].dir, imageName)
	var attempts sync.WaitGroup
	for range 4 { // a machine may have few such devices
		attempts.Go(func() {
			for range 4 {
				device, err := attach(image)
				if err != nil {
					t.Error(err)
					return
				}
				_ = device.Close()
			}
		})
	}
	attempts.Wait()
	if open := loops(); len(open) > 0 {
		t.Errorf("after attempts at once %v are open", open)
	}
	wantNoDevice(t, dir)
}

// TestMountsEnd checks that the thread for mounts has ended when end returns, and all mounts with
// it.
func TestMountsEnd(t *testing.T) {
	t.Parallel()
	for range 5 {
		var m mounts
		err := m.onThread(func() error { return nil })
		if errors.Is(err, fs.ErrPermission) {
			t.Skipf("this process may not have mounts of its own: %v", err)
		}
		must.Do(t, err)
		ended := m.ended
		m.end()
		select {
		case <-ended:
		default:
			t.Error("the thread goes on")
		}
	}
}

// TestUnusableFileSystem checks that a file system that cannot be used is unmounted, and is used
// again once it is repaired.
func TestUnusableFileSystem(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := sized(t, openStore(t, dir), MinSize)
	create(t, r, "1", "a")
	v := r.byID["1"]
	at := filepath.Join(v.dir, mountName)
	change := func(change func(root string) error) {
		t.Helper()
		root, err := r.mounts.mount(filepath.Join(v.dir, imageName), at)
		must.Do(t, err)
		must.Do(t, errors.Join(change(fmt.Sprintf("/proc/self/fd/%d", root.Fd())), r.mounts.unmount(root, at)))
	}
	change(func(root string) error { return os.Symlink("nowhere", filepath.Join(root, filesName+".new")) })
	for range 2 {
		if _, err := r.Open("1"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), filesName+".new") {
			t.Errorf("got error %v, want %v of the link", err, fs.ErrNotExist)
		}
		wantNoDevice(t, dir)
	}
	change(func(root string) error { return os.Remove(filepath.Join(root, filesName+".new")) })
	write(t, r, "1", "file", "text")
	wantFile(t, r, "1", "file", "text")
}

// TestSweepOfSized checks that files that an earlier process left in a volume with a size are
// deleted when the volume is next used.
func TestSweepOfSized(t *testing.T) {
	t.Parallel()
	s := openStore(t, t.TempDir())
	r := sized(t, s, MinSize)
	create(t, r, "1", "a")
	write(t, r, "1", "kept", "text")
	root := rootOf(r.byID["1"])
	must.Do(t, os.MkdirAll(filepath.Join(root, removedName, "old", "deep"), 0o700))
	must.Do(t, os.WriteFile(filepath.Join(root, newName, "half"), []byte("text"), 0o600))
	must.Do(t, r.Close())
	next := sized(t, s, MinSize)
	wantFile(t, next, "1", "kept", "text")
	for _, name := range []string{removedName, newName} {
		if left, err := os.ReadDir(filepath.Join(rootOf(next.byID["1"]), name)); err != nil || len(left) > 0 {
			t.Errorf("%s: got %v and error %v, want nothing left", name, left, err)
		}
	}
}

// wantNoDevice waits until no file in a directory belongs to a loop device: a file system is in use
// for a moment after it was unmounted.
func wantNoDevice(t *testing.T, dir string) {
	t.Helper()
	var left []string
	defer func() {
		if t.Failed() {
			t.Logf("got the loop devices %v", left)
		}
	}()
	patience.Until(t, "no file of "+dir+" is a loop device", func() bool {
		left = devices(t, dir)
		return len(left) == 0
	})
}

func devices(t *testing.T, dir string) (left []string) {
	t.Helper()
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	must.Do(t, err)
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && strings.HasPrefix(string(text), dir) {
			left = append(left, fmt.Sprintf("%s: %s", file, bytes.TrimSpace(text)))
		}
	}
	return left
}

// TestSizeRefused checks that volumes with a size are refused where they do not work, and that the error of each step
// comes out: of the image, of its file system, and of the loop device.
func TestSizeRefused(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{"one id": {OneID: true, Size: MinSize}, "too small": {Size: MinSize - 1}, "a disk that fails": {Size: MinSize}} {
		o.Store = openStore(t, t.TempDir())
		r := New(o)
		if name == "a disk that fails" {
			storetest.FailNth(o.Store, 1)
		}
		err := r.CheckSize(t.Context())
		storetest.Mend(o.Store)
		if !errors.Is(err, ErrNoSize) || errors.Is(err, storetest.ErrFault) != (name == "a disk that fails" && os.Geteuid() == 0) || os.Geteuid() != 0 && !strings.Contains(err.Error(), "only root") {
			t.Errorf("%s: got error %v, want %v", name, err, ErrNoSize)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := findProgram("mkfs.none"); err == nil || !strings.Contains(err.Error(), "there is no mkfs.none") {
		t.Errorf("a program that is missing: got error %v", err)
	}
	dir := t.TempDir()
	if err := makeImage(t.Context(), dir, 1024); err == nil {
		t.Error("a file system of 1 KiB was made")
	}
	if err := makeImage(t.Context(), dir, MinSize); err == nil {
		t.Error("an image took the place of another one")
	}
	image := filepath.Join(dir, "loop")
	must.Do(t, os.WriteFile(image, make([]byte, 1<<20), 0o600))
	made := func() error { return makeImage(t.Context(), dir, MinSize) }
	attached := func() error {
		device, err := attach(image)
		return errors.Join(err, device.Close())
	}
	_, noProgram := findProgram("mkfs." + imageType)
	for _, tt := range []struct {
		do     func() error
		number uint32
		n      int
		want   string
		needs  error
	}{
		{made, unix.SYS_MKDIRAT, 1, mountName, noProgram}, {made, unix.SYS_OPENAT, 1, imageName, noProgram}, {made, unix.SYS_FTRUNCATE, 1, imageName, noProgram},
		{attached, unix.SYS_OPENAT, 1, image, nil}, {attached, unix.SYS_OPENAT, 2, "no loop devices", nil}, {attached, unix.SYS_OPENAT, 3, "open a free loop device", lacksForSizes()},
		{attached, unix.SYS_IOCTL, 1, "find a free loop device", lacksForSizes()}, {attached, unix.SYS_IOCTL, 2, "make a loop device", lacksForSizes()},
	} {
		dir = t.TempDir()
		failed, err := calltest.FailNth(t, tt.number, tt.n, unix.EIO, tt.do)
		if tt.needs == nil && (!failed || !errors.Is(err, unix.EIO) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("call %d of %d failed, %v: got error %v, want %q", tt.n, tt.number, failed, err, tt.want)
		}
	}
}

// TestStartOfSized checks that a start looks for leftover files only in volumes without a size. In
// other volumes they are deleted when the volume is mounted.
func TestStartOfSized(t *testing.T) {
	t.Parallel()
	s := openStore(t, t.TempDir())
	create(t, sized(t, s, MinSize), "1", "small")
	create(t, sized(t, s, 0), "2", "large")
	var log bytes.Buffer
	r := New(Options{Store: s, OneID: os.Geteuid() != 0, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if len(r.List()) != 2 || log.Len() > 0 {
		t.Errorf("got %v and the log %s, want two volumes and nothing", r.List(), log.String())
	}
}
