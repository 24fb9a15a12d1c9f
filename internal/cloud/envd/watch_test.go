//go:build linux

package envd

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

type watching struct {
	*connect.ServerStreamForClient[filesystem.WatchDirResponse]
}

func (d *daemon) watch(t *testing.T, req *filesystem.WatchDirRequest) watching {
	t.Helper()
	s, err := d.files().WatchDir(t.Context(), connect.NewRequest(req))
	must.Do(t, err)
	t.Cleanup(func() { s.Close() })
	if !s.Receive() || s.Msg().GetStart() == nil {
		t.Fatalf("no start event: %v, want a message", s.Err())
	}
	return watching{s}
}

// until returns the events before something happens to the file called end.
func (w watching) until(t *testing.T, end string) []string {
	t.Helper()
	var events []string
	for w.Receive() {
		event := w.Msg().GetFilesystem()
		if event.GetName() == end {
			return events
		}
		events = append(events, strings.TrimPrefix(event.GetType().String(), "EVENT_TYPE_")+" "+event.GetName())
	}
	t.Fatalf("after %v: %v", events, w.Err())
	return nil
}

func TestWatch(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		recursive bool
		do        func(t *testing.T, d *daemon)
		want      []string
	}{
		"small upload": {false, func(t *testing.T, d *daemon) {
			d.do(t, "POST", "/files?path=new", "text", "Content-Type", "application/octet-stream")
		}, []string{"CREATE new", "CHMOD new", "WRITE new"}},
		"overwriting upload": {false, func(t *testing.T, d *daemon) {
			d.do(t, "POST", "/files?path=old", "text", "Content-Type", "application/octet-stream")
		}, []string{"CHMOD old", "WRITE old"}},
		"large upload": {false, func(t *testing.T, d *daemon) {
			d.do(t, "POST", "/files?path=old", strings.Repeat("x", block+1), "Content-Type", "application/octet-stream")
		}, []string{"CHMOD old", "WRITE old"}},
		"rename": {false, func(t *testing.T, d *daemon) {
			_ = os.Rename(d.home+"/old", d.home+"/new")
		}, []string{"RENAME old", "CREATE new"}},
		"remove":      {false, func(t *testing.T, d *daemon) { _ = os.Remove(d.home + "/old") }, []string{"REMOVE old"}},
		"below, flat": {false, func(t *testing.T, d *daemon) { put(t, d.home+"/sub/x", "") }, nil},
		"below, deep": {true, func(t *testing.T, d *daemon) { put(t, d.home+"/sub/x", "") }, []string{"CREATE sub/x"}},
		"new tree": {true, func(t *testing.T, d *daemon) {
			// Made elsewhere, so that no watcher sees the steps.
			must.Do(t, os.MkdirAll(d.home+"-else/n1/n2", 0o755))
			put(t, d.home+"-else/n1/n2/q", "")
			_ = os.Rename(d.home+"-else/n1", d.home+"/n1")
		}, []string{"CREATE n1", "CREATE n1/n2", "CREATE n1/n2/q"}},
		"renamed tree": {true, func(t *testing.T, d *daemon) {
			_ = os.Rename(d.home+"/sub", d.home+"/moved")
		}, []string{"RENAME sub", "CREATE moved"}},
		"directory": {true, func(t *testing.T, d *daemon) {
			_ = errors.Join(os.Chmod(d.home+"/sub", 0o700), os.Chmod(d.home+"/sub", 0o755), os.Remove(d.home+"/sub"))
		}, []string{"CHMOD sub", "REMOVE sub"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := serve(t)
			put(t, d.home+"/old", "")
			must.Do(t, os.Mkdir(d.home+"/sub", 0o755))
			w := d.watch(t, &filesystem.WatchDirRequest{Recursive: test.recursive})
			test.do(t, d)
			put(t, d.home+"/end", "")
			// The kernel merges equal events that have not been read yet.
			if diff := cmp.Diff(test.want, slices.Compact(w.until(t, "end"))); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWatchNewTrees makes directories as fast as it can: nothing may be missed,
// and nothing reported twice.
func TestWatchNewTrees(t *testing.T) {
	t.Parallel()
	d := serve(t)
	w := d.watch(t, &filesystem.WatchDirRequest{Recursive: true})
	var want []string
	for _, top := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
		dir := d.home + "/" + top + "/1/2/3"
		must.Do(t, os.MkdirAll(dir, 0o755))
		put(t, dir+"/file", "")
		for _, name := range []string{"", "/1", "/1/2", "/1/2/3", "/1/2/3/file"} {
			want = append(want, "CREATE "+top+name)
		}
	}
	seen := map[string]int{}
	for len(seen) < len(want) && w.Receive() {
		event := w.Msg().GetFilesystem()
		seen[strings.TrimPrefix(event.GetType().String(), "EVENT_TYPE_")+" "+event.GetName()]++
	}
	for _, event := range want {
		if seen[event] != 1 {
			t.Errorf("%s: told %d times, want 1", event, seen[event])
		}
	}
	// The moved tree is still watched, under its new name.
	must.Do(t, os.Rename(d.home+"/a", d.home+"/A"))
	put(t, d.home+"/A/1/2/3/more", "")
	w.until(t, "A/1/2/3/more")
}

func TestWatchEntries(t *testing.T) {
	t.Parallel()
	d := serve(t)
	w := d.watch(t, &filesystem.WatchDirRequest{IncludeEntry: true})
	put(t, d.home+"/a", "text")
	if !w.Receive() {
		t.Fatalf("got %v, want a message", w.Err())
	}
	if entry := w.Msg().GetFilesystem().GetEntry(); entry.GetPath() != d.home+"/a" || entry.GetType() != isFile {
		t.Errorf("entry %v, want path %v and type %v", entry, d.home+"/a", isFile)
	}
}

func TestWatchRefused(t *testing.T) {
	t.Parallel()
	d := serve(t)
	put(t, d.home+"/file", "")
	for path, want := range map[string]connect.Code{"none": connect.CodeNotFound, "file": connect.CodeInvalidArgument} {
		s, err := d.files().WatchDir(t.Context(), connect.NewRequest(&filesystem.WatchDirRequest{Path: path}))
		must.Do(t, err)
		if s.Receive() || connect.CodeOf(s.Err()) != want {
			t.Errorf("%s: %v, want %v", path, s.Err(), want)
		}
		s.Close()
	}
}

func TestPolledWatch(t *testing.T) {
	t.Parallel()
	d := serve(t)
	client := d.files()
	created, err := client.CreateWatcher(t.Context(), connect.NewRequest(&filesystem.CreateWatcherRequest{}))
	must.Do(t, err)
	id := created.Msg.GetWatcherId()
	if len(id) != 21 || id[0] != 'w' {
		t.Errorf("id %q, want w and 20 characters", id)
	}
	put(t, d.home+"/a", "")
	var got []*filesystem.FilesystemEvent
	patience.Until(t, "the event", func() bool {
		res, err := client.GetWatcherEvents(t.Context(), connect.NewRequest(&filesystem.GetWatcherEventsRequest{WatcherId: id}))
		must.Do(t, err)
		got = append(got, res.Msg.GetEvents()...)
		return len(got) > 0
	})
	if len(got) != 1 || got[0].GetName() != "a" {
		t.Errorf("events %v, want one, of %q", got, "a")
	}
	if _, err := client.RemoveWatcher(t.Context(), connect.NewRequest(&filesystem.RemoveWatcherRequest{WatcherId: id})); err != nil {
		t.Error(err)
	}
	_, err = client.RemoveWatcher(t.Context(), connect.NewRequest(&filesystem.RemoveWatcherRequest{WatcherId: id}))
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("RemoveWatcher again: %v, want not_found", err)
	}
	_, err = client.GetWatcherEvents(t.Context(), connect.NewRequest(&filesystem.GetWatcherEventsRequest{WatcherId: id}))
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("GetWatcherEvents: %v, want not_found", err)
	}
}

func TestWatchersAreBounded(t *testing.T) {
	t.Parallel()
	d := serve(t)
	client := d.files()
	var last string
	for range maxWatchers {
		created, err := client.CreateWatcher(t.Context(), connect.NewRequest(&filesystem.CreateWatcherRequest{}))
		if err != nil {
			t.Skipf("the machine's own bound is lower: %v", err)
		}
		last = created.Msg.GetWatcherId()
	}
	_, err := client.CreateWatcher(t.Context(), connect.NewRequest(&filesystem.CreateWatcherRequest{}))
	if connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), "the bound is 64") {
		t.Errorf("one more: %v, want the bound named", err)
	}
	if _, err := client.RemoveWatcher(t.Context(), connect.NewRequest(&filesystem.RemoveWatcherRequest{WatcherId: last})); err != nil {
		t.Error(err)
	}
	patience.Until(t, "a free place", func() bool {
		_, err := client.CreateWatcher(t.Context(), connect.NewRequest(&filesystem.CreateWatcherRequest{}))
		return err == nil
	})
}

// TestWatchShowsThatItLives checks that a watch without changes sends a sign of life, and then the changes.
func TestWatchShowsThatItLives(t *testing.T) {
	t.Parallel()
	d := serve(t)
	req := connect.NewRequest(&filesystem.WatchDirRequest{})
	req.Header().Set("Keepalive-Ping-Interval", "1")
	s, err := d.files().WatchDir(t.Context(), req)
	must.Do(t, err)
	defer s.Close()
	for _, want := range []string{"start", "keepalive", "filesystem"} {
		if !s.Receive() {
			t.Fatalf("got error %v, want the event %s", s.Err(), want)
		}
		got := map[bool]string{s.Msg().GetStart() != nil: "start", s.Msg().GetKeepalive() != nil: "keepalive", s.Msg().GetFilesystem() != nil: "filesystem"}[true]
		if got != want {
			t.Errorf("got the event %v, want %s", s.Msg(), want)
		}
		if want == "keepalive" {
			put(t, d.home+"/a", "")
		}
	}
}

// TestNamesOfEvents checks that an event names its file relative to the watched directory where that is possible.
func TestNamesOfEvents(t *testing.T) {
	t.Parallel()
	w := &watch{root: "/a"}
	for path, want := range map[string]string{"/a": ".", "/a/b": "b", "/a/b/c": "b/c", "/c": "../c", "relative": "relative"} {
		got := w.event(path, filesystem.EventType_EVENT_TYPE_WRITE)
		if got.GetName() != want || got.GetType() != filesystem.EventType_EVENT_TYPE_WRITE || got.GetEntry() != nil {
			t.Errorf("%s: got %v, want a write of %s", path, got, want)
		}
	}
}
