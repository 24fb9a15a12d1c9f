//go:build linux

package envd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// flatWatch returns a watch of the home that has no directory below it yet.
func (d *daemon) flatWatch(t *testing.T) *watch {
	t.Helper()
	w, err := d.server.newWatch(d.home, &filesystem.WatchDirRequest{Path: d.home})
	must.Do(t, err)
	t.Cleanup(func() { _ = w.close() }) // some tests have closed it
	return w
}

// TestCreations checks the reports of a watch for a path that was created, and its knowledge afterwards.
func TestCreations(t *testing.T) {
	t.Parallel()
	d := serve(t)
	must.Do(t, os.MkdirAll(d.home+"/dir/below", 0o700))
	put(t, d.home+"/file", "")
	put(t, d.home+"/dir/below/file", "")
	inodeAt := func(name string) inode {
		info, err := os.Lstat(d.home + "/" + name)
		must.Do(t, err)
		return inodeOf(info)
	}
	other, all := inode{1, 1}, []string{"dir", "dir/below", "dir/below/file"}
	for name, tt := range map[string]struct {
		path         string
		flat, known  bool
		reported     inode // as what the path was reported before; zero: it was not
		events       []string
		dirs, report []string // what is watched and reported afterwards
	}{
		"a file":                             {path: "file", events: []string{"file"}},
		"a reported file":                    {path: "file", reported: inodeAt("file")},
		"another file with a reported name":  {path: "file", reported: other, events: []string{"file"}},
		"a file that is gone":                {path: "gone", events: []string{"gone"}},
		"a reported file that is gone":       {path: "gone", reported: other},
		"a directory":                        {path: "dir", events: all, dirs: all[:2], report: all[1:]},
		"a reported directory":               {path: "dir", reported: inodeAt("dir"), events: all[1:], dirs: all[:2], report: all[1:]},
		"a directory that is watched":        {path: "dir", known: true, events: all[:1], dirs: all[:1]},
		"a directory, and the watch is flat": {path: "dir", flat: true, events: all[:1]},
	} {
		w := d.flatWatch(t)
		w.recursive = !tt.flat
		if tt.known {
			w.dirs[d.home+"/"+tt.path] = true
		}
		if tt.reported != (inode{}) {
			w.reported[d.home+"/"+tt.path] = tt.reported
		}
		w.reported[d.home+"/untouched"] = other
		var events []string
		must.Do(t, w.created(d.home+"/"+tt.path, func(path string, kind filesystem.EventType) error {
			events = append(events, strings.TrimPrefix(path, d.home+"/"))
			if kind != filesystem.EventType_EVENT_TYPE_CREATE {
				t.Errorf("%s: got the event %v of %s", name, kind, path)
			}
			return nil
		}))
		if diff := cmp.Diff(tt.events, events); diff != "" {
			t.Errorf("%s: events (-want +got):\n%s", name, diff)
		}
		dirs, reported := map[string]bool{}, map[string]bool{d.home + "/untouched": true}
		for _, dir := range tt.dirs {
			dirs[d.home+"/"+dir] = true
		}
		for _, file := range tt.report {
			reported[d.home+"/"+file] = true
		}
		got := map[string]bool{}
		for file, as := range w.reported {
			got[file] = as == other || as == inodeAt(strings.TrimPrefix(file, d.home+"/"))
		}
		if diff := cmp.Diff(dirs, w.dirs) + cmp.Diff(reported, got); diff != "" {
			t.Errorf("%s: watched directories and reported files (-want +got):\n%s", name, diff)
		}
		if open := descriptors(t); open[d.home+"/dir"]+open[d.home+"/dir/below"] != 0 {
			t.Errorf("%s: a directory stays open", name)
		}
	}
}

// TestCatchUpEnds checks that a request for events handles the changes from before the request, even if further
// ones happen meanwhile, and no others.
func TestCatchUpEnds(t *testing.T) {
	t.Parallel()
	d := serve(t)
	w := d.flatWatch(t)
	var got []string
	changeAgain := func(event *filesystem.FilesystemEvent) error {
		if got = append(got, event.GetName()); len(got) > 9 {
			return errors.New("changes without an end")
		}
		return os.Mkdir(d.home+"/"+fmt.Sprint(len(got)), 0o700)
	}
	if !w.catchUp(changeAgain) || len(got) > 0 {
		t.Errorf("without a change: got %v", got)
	}
	must.Do(t, os.Mkdir(d.home+"/0", 0o700))
	for n := range 3 {
		if want := strconv.Itoa(n); !w.catchUp(changeAgain) || len(got) != n+1 || got[n] != want {
			t.Errorf("the request %d: got the events %v, want up to %s", n, got, want)
		}
	}
	must.Do(t, w.close())
	if w.catchUp(changeAgain) {
		t.Error("a closed watch goes on")
	}
}

// TestCodesOfABrokenWatch checks the code of each error that ends a watch, and that the watch has no other one later. It
// runs before the tests that wait for changes.
func TestCodesOfABrokenWatch(t *testing.T) { //nolint:paralleltest // see above
	d := serve(t)
	for n, tt := range []struct {
		number uint32
		as     unix.Errno
		emit   error
		want   connect.Code
		text   string
	}{
		{unix.SYS_INOTIFY_ADD_WATCH, unix.ENOSPC, nil, connect.CodeResourceExhausted, "error watching a new directory: "},
		{unix.SYS_READ, unix.EIO, nil, connect.CodeInternal, "watcher error: "},
		{unix.SYS_GETPID, 0, connect.NewError(connect.CodeCanceled, os.ErrClosed), connect.CodeCanceled, os.ErrClosed.Error()},
		{unix.SYS_GETPID, 0, os.ErrClosed, connect.CodeResourceExhausted, os.ErrClosed.Error()},
	} {
		w := d.flatWatch(t)
		w.recursive = true
		must.Do(t, os.Mkdir(d.home+"/"+strconv.Itoa(n), 0o700))
		_, err := calltest.FailNth(t, tt.number, 1, tt.as, func() error {
			_, err := w.take(func(*filesystem.FilesystemEvent) error { return tt.emit })
			return err
		})
		if connect.CodeOf(err) != tt.want || !strings.Contains(err.Error(), tt.text) || tt.as != 0 && !errors.Is(err, tt.as) {
			t.Errorf("%d: got error %v, want %v: %s", n, err, tt.want, tt.text)
		}
		if size, again := w.take(nil); size != 0 || again != err { //nolint:errorlint // it is the same one
			t.Errorf("%d: later: got %d bytes and error %v, want %v", n, size, again, err)
		}
		w.catchUp(nil)
		if !w.mu.TryLock() {
			t.Fatalf("%d: the lock of the watch is kept", n)
		}
		w.mu.Unlock()
	}
}

// TestWatchThatIsNotIdle checks that neither an interrupt without an interval nor the end of a watch counts as a
// time without events.
func TestWatchThatIsNotIdle(t *testing.T) {
	t.Parallel()
	d := serve(t)
	for name, tt := range map[string]struct {
		interval time.Duration
		stop     func(ws *watchers, w *watch, cancel context.CancelFunc)
		want     connect.Code // 0: the watch goes on
	}{
		"an interrupt":         {0, func(_ *watchers, w *watch, _ context.CancelFunc) { w.notify.interrupt() }, 0},
		"the end of a client":  {time.Hour, func(_ *watchers, _ *watch, cancel context.CancelFunc) { cancel() }, connect.CodeCanceled},
		"the end of a sandbox": {time.Hour, func(ws *watchers, _ *watch, _ context.CancelFunc) { ws.end() }, connect.CodeUnavailable},
	} {
		for round := range 20 { // the watch does not wait yet in each of them
			w, ws := d.flatWatch(t), newWatchers()
			ctx, cancel := context.WithCancel(t.Context())
			happened, ended := make(chan string, 9), make(chan error, 1)
			go func() {
				ended <- ws.run(ctx, w, tt.interval, func(event *filesystem.FilesystemEvent) error {
					happened <- event.GetName()
					return nil
				}, func() error { happened <- "idle"; return nil })
			}()
			want := func(event string) {
				t.Helper()
				must.Do(t, os.Mkdir(d.home+"/"+event, 0o700))
				if got := patience.Receive(t, "a change", happened); got != event {
					t.Errorf("%s: got %q, want %q", name, got, event)
				}
				must.Do(t, os.Remove(d.home+"/"+event))
				if got := patience.Receive(t, "its removal", happened); got != event {
					t.Errorf("%s: got %q, want %q", name, got, event)
				}
			}
			want(fmt.Sprint("before ", round))
			tt.stop(ws, w, cancel)
			if tt.want == 0 {
				want(fmt.Sprint("after ", round))
				cancel()
			}
			if err := patience.Receive(t, "the end of the watch", ended); tt.want != 0 && connect.CodeOf(err) != tt.want {
				t.Errorf("%s: got error %v, want %v", name, err, tt.want)
			}
			if len(happened) > 0 {
				t.Errorf("%s: got %q, want nothing more", name, <-happened)
			}
			cancel()
			ws.end()
			must.Do(t, w.close())
		}
	}
}

// TestPlacesOfWatches checks that a watch that could not begin takes no place, and that a removed watch gives its place
// back.
func TestPlacesOfWatches(t *testing.T) { //nolint:paralleltest // with such a place, no sandbox of another test ends
	d := serve(t)
	put(t, d.home+"/file", "")
	s, ws := &filesystemService{d.server}, d.server.watchers
	for name, tt := range map[string]struct {
		path string
		as   unix.Errno
		want connect.Code
	}{
		"a path of another user": {"~other", 0, connect.CodeInvalidArgument},
		"no directory":           {"none", 0, connect.CodeNotFound},
		"a file":                 {"file", 0, connect.CodeInvalidArgument},
		"too many watches":       {"", unix.EMFILE, connect.CodeResourceExhausted},
	} {
		for call, do := range map[string]func() error{
			"WatchDir": func() error {
				return s.WatchDir(t.Context(), connect.NewRequest(&filesystem.WatchDirRequest{Path: tt.path}), nil)
			},
			"CreateWatcher": func() error {
				_, err := s.CreateWatcher(t.Context(), connect.NewRequest(&filesystem.CreateWatcherRequest{Path: tt.path}))
				return err
			},
		} {
			_, err := calltest.FailNth(t, unix.SYS_INOTIFY_INIT1, 1, tt.as, do)
			if connect.CodeOf(err) != tt.want {
				t.Errorf("%s: %s: got error %v, want %v", call, name, err, tt.want)
			}
			if ws.count != 0 || len(ws.polled) != 0 {
				t.Errorf("%s: %s: %d places are taken, %d of polled watches, want none", call, name, ws.count, len(ws.polled))
				ws.leave() // so that the sandbox can end
			}
		}
	}
	began := time.Now()
	made, err := s.CreateWatcher(t.Context(), connect.NewRequest(&filesystem.CreateWatcherRequest{}))
	must.Do(t, err)
	w := ws.polled[made.Msg.GetWatcherId()]
	if ws.count != 1 || len(ws.polled) != 1 {
		t.Errorf("after a start: %d places are taken, %d of polled watches, want one", ws.count, len(ws.polled))
	}
	if w == nil || w.all != ws || w.asked.Before(began) {
		t.Errorf("after a start: got the watch %+v, want one of these watches, asked since %v", w, began)
	}
	remove := connect.NewRequest(&filesystem.RemoveWatcherRequest{WatcherId: made.Msg.GetWatcherId()})
	_, err = s.RemoveWatcher(t.Context(), remove)
	must.Do(t, err)
	if ws.count != 0 || len(ws.polled) != 0 {
		t.Errorf("after the end: %d places are taken, %d of polled watches, want none", ws.count, len(ws.polled))
	}
	if _, err := s.RemoveWatcher(t.Context(), remove); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("once more: got error %v, want %v", err, connect.CodeNotFound)
	}
}

// TestWatcherThatMakesRoom checks which watcher gives its place to another one, and that none does while a place is free.
func TestWatcherThatMakesRoom(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		count int
		ago   map[string]time.Duration // since the last poll of each watcher
		drops string
		want  connect.Code
	}{
		"a free place":      {maxWatchers - 1, map[string]time.Duration{"a": 2 * abandoned}, "", 0},
		"nobody":            {maxWatchers, nil, "", connect.CodeResourceExhausted},
		"polled just now":   {maxWatchers, map[string]time.Duration{"a": abandoned}, "", connect.CodeResourceExhausted},
		"polled before":     {maxWatchers, map[string]time.Duration{"a": abandoned + 1}, "a", 0},
		"the first to poll": {maxWatchers, map[string]time.Duration{"a": abandoned + 1, "b": abandoned + 3, "c": abandoned + 2, "d": 0}, "b", 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			ws := newWatchers()
			ws.count = tt.count
			stopped := ""
			var want []string
			for id, ago := range tt.ago {
				ws.polled[id] = &polled{asked: time.Now().Add(-ago), stop: func() { stopped += id }}
				if id != tt.drops {
					want = append(want, id)
				}
			}
			err := ws.enter()
			if (err == nil) != (tt.want == 0) || err != nil && connect.CodeOf(err) != tt.want {
				t.Errorf("%s: got error %v, want %v", name, err, tt.want)
			}
			var left []string
			for id := range ws.polled {
				left = append(left, id)
			}
			slices.Sort(left)
			slices.Sort(want)
			if stopped != tt.drops || !slices.Equal(left, want) || ws.count != maxWatchers {
				t.Errorf("%s: %q is stopped, %v are left, and %d places are taken, want %q, %v and %d", name, stopped, left, ws.count, tt.drops, want, maxWatchers)
			}
			if err == nil {
				ws.leave()
			}
			must.Do(t, ws.close())
		})
	}
}

// TestKeptEvents checks the exact bound of kept events, in which order events and the error of their watch are taken,
// and that they are counted until then.
func TestKeptEvents(t *testing.T) {
	t.Parallel()
	event := &filesystem.FilesystemEvent{Name: "a", Type: filesystem.EventType_EVENT_TYPE_WRITE}
	probe := &polled{all: newWatchers()}
	must.Do(t, probe.keep(event))
	size := probe.size
	if size <= 0 || probe.all.kept.Load() != size {
		t.Fatalf("an event has %d bytes, and %d are counted", size, probe.all.kept.Load())
	}
	broken := errors.New("the watch is broken")
	began := time.Now()
	for beyond, fits := range map[int64]bool{-1: true, 0: true, 1: false} {
		p := &polled{all: newWatchers()}
		others := maxKept - 2*size + beyond
		p.all.kept.Store(others)
		must.Do(t, p.keep(event))
		if err := p.keep(event); (err == nil) != fits || err != nil && connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("%d bytes beyond the bound: got error %v, want that it fits: %v", beyond, err, fits)
		}
		n := len(p.events)
		if p.size != int64(n)*size || p.all.kept.Load() != others+p.size || fits != (n == 2) {
			t.Errorf("%d bytes beyond the bound: %d events are kept, with %d bytes, and %d are counted", beyond, n, p.size, p.all.kept.Load())
		}
		p.fail(broken)
		if events, err := p.take(); len(events) != n || events[0] != event || err != nil {
			t.Errorf("got the events %v and error %v, want %d", events, err, n)
		}
		if events, err := p.take(); events != nil || !errors.Is(err, broken) {
			t.Errorf("later: got the events %v and error %v, want %v", events, err, broken)
		}
		if p.all.kept.Load() != others || p.size != 0 || p.asked.Before(began) {
			t.Errorf("in the end, %d bytes are counted, %d of this watch, asked at %v, want %d and none", p.all.kept.Load(), p.size, p.asked, others)
		}
	}
	if events, err := (&polled{all: newWatchers()}).take(); events != nil || err != nil {
		t.Errorf("without events: got %v and error %v", events, err)
	}
}

// TestModesToldTwice checks which of the reports of the modes of directories are the second ones of their changes.
func TestModesToldTwice(t *testing.T) {
	t.Parallel()
	w := &watch{dirs: map[string]bool{"a": true, "b": true}}
	for n, tt := range []struct {
		path  string
		twice bool
	}{{"a", false}, {"a", true}, {"a", false}, {"file", false}, {"a", true}, {"a", false}, {"b", false}, {"a", false}, {"a", true}, {"file", false}, {"file", false}} {
		if got := w.toldTwice(tt.path); got != tt.twice {
			t.Errorf("the report %d, of %s: got %v, want %v", n, tt.path, got, tt.twice)
		}
	}
}

// TestErrorsThatAreNoEnd checks which errors of a directory that a watch finds are no errors of the watch.
func TestErrorsThatAreNoEnd(t *testing.T) {
	t.Parallel()
	for err, ignored := range map[error]bool{
		unix.ENOENT: true, unix.ENOTDIR: true, unix.EACCES: true, unix.EPERM: true, fs.ErrNotExist: true,
		unix.EIO: false, unix.ENOSPC: false, errTooManyDirs: false,
	} {
		if got := ignoreGone(fmt.Errorf("a directory: %w", err)); (got == nil) != ignored || got != nil && !errors.Is(got, err) {
			t.Errorf("%v: got %v, want it to be ignored: %v", err, got, ignored)
		}
	}
	must.Do(t, ignoreGone(nil))
}
