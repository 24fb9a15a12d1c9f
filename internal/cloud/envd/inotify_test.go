//go:build linux

package envd

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
	"github.com/e2bctl/e2bctl/internal/must"
)

// newNotify follows the directories a and b.
func newNotify(t *testing.T) (n *inotify, a, b string) {
	t.Helper()
	n, err := newInotify()
	must.Do(t, err)
	t.Cleanup(func() { _ = n.close() }) // some tests have closed it
	a, b = t.TempDir(), t.TempDir()
	must.Do(t, errors.Join(n.add(a, followed), n.add(b, followed)))
	return n, a, b
}

// wantFollowed checks that the two maps of n name the same directories.
func (n *inotify) wantFollowed(t *testing.T, what string, want ...string) {
	t.Helper()
	got, wanted := map[string]bool{}, map[string]bool{}
	for dir, id := range n.ids {
		got[dir] = n.dirs[id] == dir
	}
	for _, dir := range want {
		wanted[dir] = true
	}
	if diff := cmp.Diff(wanted, got); diff != "" || len(n.dirs) != len(want) {
		t.Errorf("%s: %v are followed (-want +got):\n%s", what, n.dirs, diff)
	}
}

// TestFollowedDirectories checks which directories are followed after one of them is renamed, removed, or no
// longer wanted, and that the kernel reports no more of one that is not wanted. It runs before the tests that wait for
// changes.
func TestFollowedDirectories(t *testing.T) { //nolint:paralleltest // see above
	n, a, b := newNotify(t)
	n.wantFollowed(t, "at first", a, b)
	must.Do(t, n.add(a, followed))
	n.wantFollowed(t, "one twice", a, b)
	must.Do(t, errors.Join(os.Rename(a, a+"-moved"), n.add(a+"-moved", followed)))
	n.wantFollowed(t, "one moved", a+"-moved", b)
	if c, ok := n.change(n.ids[b], unix.IN_IGNORED, ""); ok {
		t.Errorf("the end of a watch: got %+v, want no change", c)
	}
	n.wantFollowed(t, "one that the kernel dropped", a+"-moved")
	if c, ok := n.change(n.ids[a+"-moved"], unix.IN_UNMOUNT, ""); ok {
		t.Errorf("an unmounted directory: got %+v, want no change", c)
	}
	n.wantFollowed(t, "one that was unmounted")
	must.Do(t, n.add(b, followed))
	n.remove("unknown")
	n.wantFollowed(t, "an unknown one is removed", b)
	n.remove(b)
	n.wantFollowed(t, "one is removed")
	ignore := func(change) error { return nil }
	for size := 1; size > 0; {
		var err error
		size, err = n.read(ignore)
		must.Do(t, err)
	}
	put(t, b+"/file", "")
	if pending, err := n.pending(); pending != 0 || err != nil {
		t.Errorf("%d bytes of changes are pending, error %v, want none", pending, err)
	}
}

// TestDirectoryThatCannotBeFollowed checks that an error names its directory, and that others are followed as before.
func TestDirectoryThatCannotBeFollowed(t *testing.T) {
	t.Parallel()
	n, a, b := newNotify(t)
	dir := t.TempDir()
	_, err := calltest.FailNth(t, unix.SYS_INOTIFY_ADD_WATCH, 1, unix.EIO, func() error { return n.add(dir, followed) })
	if got, ok := errors.AsType[*os.PathError](err); !ok || *got != (os.PathError{Op: "inotify_add_watch", Path: dir, Err: unix.EIO}) {
		t.Errorf("got error %#v, want one that names %s", err, dir)
	}
	put(t, dir+"/file", "")
	if err := n.add(dir+"/file", followed); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("a file: got error %v, want %v", err, unix.ENOTDIR)
	}
	n.wantFollowed(t, "after errors", a, b)
}

// TestDirectoryMountedTwice checks that a directory keeps its first name if it has a second one as well.
func TestDirectoryMountedTwice(t *testing.T) {
	t.Parallel()
	n, a, b := newNotify(t)
	n.remove(b)
	if err := unix.Mount(a, b, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("this test needs a mount: %v", err)
	}
	t.Cleanup(func() { must.Do(t, unix.Unmount(b, unix.MNT_DETACH)) })
	must.Do(t, n.add(b, followed))
	n.wantFollowed(t, "mounted twice", a)
	for _, other := range []string{a + "/none", t.TempDir()} {
		if sameFile(a, other) || sameFile(other, a) {
			t.Errorf("%s and %s are said to be one", a, other)
		}
	}
	if !sameFile(a, b) {
		t.Error("a directory and its second name are said to be different")
	}
}

// TestDeadlineOfChanges checks that a wait for changes ends at its deadline, and that without one a passed
// deadline has no effect.
func TestDeadlineOfChanges(t *testing.T) {
	t.Parallel()
	n, a, _ := newNotify(t)
	never := func() bool { return false }
	must.Do(t, n.setDeadline(time.Millisecond))
	must.Is(t, n.wait(never), os.ErrDeadlineExceeded)
	n.interrupt()
	must.Is(t, n.wait(never), os.ErrDeadlineExceeded)
	must.Do(t, n.setDeadline(0))
	put(t, a+"/file", "")
	calls := 0
	must.Do(t, n.wait(func() bool { calls++; return calls == 1 }))
	must.Do(t, n.close())
	if err := n.setDeadline(0); err == nil {
		t.Error("a closed one takes a deadline")
	}
	if _, err := n.pending(); err == nil {
		t.Error("a closed one tells what is pending")
	}
	if err := n.add(a, followed); err == nil {
		t.Error("a closed one follows directories")
	}
}

// TestReadsOfChanges makes single reads of changes fail, and checks what is passed on, in which order.
func TestReadsOfChanges(t *testing.T) {
	t.Parallel()
	n, a, b := newNotify(t)
	var got []string
	stop := errors.New("its client has gone")
	take := func(c change) error {
		if got = append(got, c.path); c.path == a+"/last" {
			return stop
		}
		return nil
	}
	read := func(what string, as unix.Errno, want error, paths ...string) {
		t.Helper()
		got = nil
		var size int
		_, err := calltest.FailNth(t, unix.SYS_READ, 1, as, func() (err error) { size, err = n.read(take); return err })
		if !errors.Is(err, want) || (size > 0) != (len(paths) > 0) {
			t.Errorf("%s: got %d bytes and error %v, want error %v", what, size, err, want)
		}
		if diff := cmp.Diff(paths, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	read("nothing", 0, nil)
	read("nothing to read", unix.EAGAIN, nil)
	put(t, a+"/one", "")
	put(t, b+"/two", "")
	read("an error", unix.EIO, unix.EIO)
	read("an interrupted call", unix.EINTR, nil, a+"/one", b+"/two")
	put(t, a+"/last", "")
	put(t, a+"/later", "")
	read("a change that is not taken", 0, stop, a+"/last")
}

// TestWatchThatIsRefused checks the code of a watch that the kernel refuses, and that network filesystems are
// not asked about if they are allowed.
func TestWatchThatIsRefused(t *testing.T) {
	t.Parallel()
	d := serve(t)
	for name, tt := range map[string]struct {
		number uint32
		as     unix.Errno
		allow  bool
		want   connect.Code // 0: the watch begins
	}{
		"no more watches":             {unix.SYS_INOTIFY_INIT1, unix.EMFILE, false, connect.CodeResourceExhausted},
		"no more directories":         {unix.SYS_INOTIFY_ADD_WATCH, unix.ENOSPC, false, connect.CodeResourceExhausted},
		"a broken directory":          {unix.SYS_INOTIFY_ADD_WATCH, unix.EIO, false, connect.CodeInternal},
		"an unreadable directory":     {unix.SYS_GETDENTS64, unix.EIO, false, connect.CodeInternal},
		"an interrupted call":         {unix.SYS_INOTIFY_ADD_WATCH, unix.EINTR, false, 0},
		"a directory that breaks":     {unix.SYS_OPENAT, unix.EIO, false, connect.CodeInternal},
		"a directory of another user": {unix.SYS_OPENAT, unix.EACCES, false, 0},
		"a directory that is gone":    {unix.SYS_OPENAT, unix.ENOENT, false, 0},
		"an unknown filesystem":       {unix.SYS_STATFS, unix.EIO, false, connect.CodeInternal},
		"a filesystem of the network": {unix.SYS_STATFS, unix.EIO, true, 0},
	} {
		var w *watch
		failed, err := calltest.FailNth(t, tt.number, 1, tt.as, func() (err error) {
			w, err = d.server.newWatch(d.home, &filesystem.WatchDirRequest{Recursive: true, AllowNetworkMounts: tt.allow})
			return err
		})
		if failed == tt.allow || (err == nil) != (tt.want == 0) || err != nil && connect.CodeOf(err) != tt.want {
			t.Errorf("%s: failed %v, error %v, want the code %v", name, failed, err, tt.want)
		}
		if err != nil && !errors.Is(err, tt.as) {
			t.Errorf("%s: got error %v, want %v", name, err, tt.as)
		}
		if err == nil {
			must.Do(t, w.close())
		}
	}
}

// TestRunOfABrokenWatch checks that a watch whose files are closed, whose client has gone, or whose server
// ends, is over.
func TestRunOfABrokenWatch(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		end  func(ws *watchers, w *watch, cancel context.CancelFunc)
		want connect.Code
	}{
		"closed":            {func(_ *watchers, w *watch, _ context.CancelFunc) { _ = w.close() }, connect.CodeInternal},
		"its client":        {func(_ *watchers, _ *watch, cancel context.CancelFunc) { cancel() }, connect.CodeCanceled},
		"its server":        {func(ws *watchers, _ *watch, _ context.CancelFunc) { ws.end() }, connect.CodeUnavailable},
		"its server, first": {func(ws *watchers, _ *watch, cancel context.CancelFunc) { ws.end(); cancel() }, connect.CodeUnavailable},
	} {
		d := serve(t)
		w, err := d.server.newWatch(d.home, &filesystem.WatchDirRequest{})
		must.Do(t, err)
		ws := newWatchers()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		defer ws.end()
		tt.end(ws, w, cancel)
		if err := ws.run(ctx, w, time.Hour, nil, nil); connect.CodeOf(err) != tt.want {
			t.Errorf("%s: got error %v, want %v", name, err, tt.want)
		}
		_ = w.close() // one of them is closed
	}
}

// TestEntriesOfEvents checks which events describe the file, and by which path, if the client asks for
// descriptions.
func TestEntriesOfEvents(t *testing.T) {
	t.Parallel()
	d := serve(t)
	must.Do(t, errors.Join(os.Mkdir(d.home+"/dir", 0o700), os.Symlink("dir", d.home+"/link")))
	put(t, d.home+"/dir/a", "")
	for _, entries := range []bool{true, false} {
		w, err := d.server.newWatch(d.home+"/link", &filesystem.WatchDirRequest{IncludeEntry: entries})
		must.Do(t, err)
		for kind, described := range map[filesystem.EventType]bool{
			filesystem.EventType_EVENT_TYPE_CREATE: true, filesystem.EventType_EVENT_TYPE_WRITE: true, filesystem.EventType_EVENT_TYPE_CHMOD: true,
			filesystem.EventType_EVENT_TYPE_REMOVE: false, filesystem.EventType_EVENT_TYPE_RENAME: false,
		} {
			want := &filesystem.FilesystemEvent{Name: "a", Type: kind}
			if entries && described {
				want.Entry, err = d.server.entry(d.home + "/link/a")
				must.Do(t, err)
			}
			if diff := cmp.Diff(want, w.event(d.home+"/dir/a", kind), protocmp.Transform()); diff != "" {
				t.Errorf("%v, with entries: %v (-want +got):\n%s", kind, entries, diff)
			}
		}
		if got := w.event(d.home+"/dir/gone", filesystem.EventType_EVENT_TYPE_CREATE); got.GetEntry() != nil {
			t.Errorf("a file that is gone: got %v", got)
		}
		must.Do(t, w.close())
	}
}
