//go:build linux

package envd

import (
	"context"
	"errors"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestBadNames: a name that is not valid text hides neither its directory nor the
// events after it, in both codecs.
func TestBadNames(t *testing.T) {
	t.Parallel()
	d := serve(t)
	w := d.watch(t, &filesystem.WatchDirRequest{IncludeEntry: true})
	put(t, d.home+"/bad\xff", "")
	put(t, d.home+"/new\nline \u20ac", "")
	must.Do(t, os.Symlink("bad\xff", d.home+"/link"))
	put(t, d.home+"/end", "")
	if got := strings.Join(w.until(t, "end"), "|"); !strings.Contains(got, "CREATE bad\uFFFD|") || !strings.Contains(got, "CREATE new\nline \u20ac|") {
		t.Errorf("events %q, want %q in it and %q in it", got, "CREATE bad\uFFFD|", "CREATE new\nline \u20ac|")
	}
	for codec, options := range map[string][]connect.ClientOption{"proto": nil, "json": {connect.WithProtoJSON()}} {
		res, err := d.files(options...).ListDir(t.Context(), connect.NewRequest(&filesystem.ListDirRequest{}))
		if err != nil {
			t.Errorf("%s: %v", codec, err)
			continue
		}
		var names []string
		for _, entry := range res.Msg.GetEntries() {
			names = append(names, entry.GetName()+">"+strings.TrimPrefix(entry.GetSymlinkTarget(), d.home))
		}
		if got, want := strings.Join(names, "|"), "bad\uFFFD>|end>|link>/bad\uFFFD|new\nline \u20ac>"; got != want {
			t.Errorf("%s: %q, want %q", codec, got, want)
		}
		if _, err := d.files(options...).Stat(t.Context(), connect.NewRequest(&filesystem.StatRequest{Path: "new\nline \u20ac"})); err != nil {
			t.Errorf("%s: Stat: %v", codec, err)
		}
	}
	// Invalid text in a request is refused, not guessed.
	res, body := d.do(t, "POST", "/filesystem.Filesystem/Stat", "{\"path\":\"bad\xff\"}", "Content-Type", "application/json")
	if res.StatusCode != 400 || !strings.Contains(body, "invalid_argument") {
		t.Errorf("JSON: %d %s, want status 400 and %q in it", res.StatusCode, body, "invalid_argument")
	}
	res, body = d.do(t, "POST", "/filesystem.Filesystem/Stat", "\x0a\x04bad\xff", "Content-Type", "application/proto")
	if res.StatusCode != 400 || !strings.Contains(body, "invalid_argument") {
		t.Errorf("proto: %d %s, want status 400 and %q in it", res.StatusCode, body, "invalid_argument")
	}
}

// TestWatchReplaced replaces a file by a rename, as editors do, in a directory that
// already had files when it was found: this is reported.
func TestWatchReplaced(t *testing.T) {
	t.Parallel()
	d := serve(t)
	elsewhere := t.TempDir()
	must.Do(t, os.Mkdir(elsewhere+"/tree", 0o755))
	put(t, elsewhere+"/tree/file", "old")
	w := d.watch(t, &filesystem.WatchDirRequest{Recursive: true})
	must.Do(t, os.Rename(elsewhere+"/tree", d.home+"/tree"))
	w.until(t, "tree/file")
	put(t, d.home+"/tree/file.new", "new")
	must.Do(t, os.Rename(d.home+"/tree/file.new", d.home+"/tree/file"))
	put(t, d.home+"/end", "")
	if got := strings.Join(w.until(t, "end"), "|"); !strings.HasSuffix(got, "RENAME tree/file.new|CREATE tree/file") {
		t.Errorf("events %q, want the creation of tree/file at the end", got)
	}
}

// TestWatchedDirectoryRemoved: the removal is reported, and the watch ends with its
// client.
func TestWatchedDirectoryRemoved(t *testing.T) {
	t.Parallel()
	d := serve(t)
	for _, recursive := range []bool{false, true} {
		must.Do(t, os.MkdirAll(d.home+"/dir/sub", 0o755))
		w := d.watch(t, &filesystem.WatchDirRequest{Path: "dir", Recursive: recursive})
		must.Do(t, os.RemoveAll(d.home+"/dir"))
		if got := w.until(t, "."); len(got) == 0 || got[0] != "REMOVE sub" {
			t.Errorf("recursive %v: events %q, want the removal of sub first", recursive, got)
		}
		w.Close()
	}
	patience.Until(t, "the end of the watches", func() bool {
		ws := d.server.watchers
		ws.mu.Lock()
		defer ws.mu.Unlock()
		return ws.count == 0
	})
}

// TestWatchOverflow makes more events than the kernel keeps for a client that reads
// none: the client is told that some are lost.
func TestWatchOverflow(t *testing.T) {
	t.Parallel()
	limit := 16 << 10
	if text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events"); err == nil {
		limit, _ = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	if limit > 64<<10 {
		t.Skipf("the kernel keeps %d events", limit)
	}
	d := serve(t)
	d.hesitate(t)
	w := d.watch(t, &filesystem.WatchDirRequest{})
	long := d.home + "/" + strings.Repeat("x", 240)
	put(t, long+"0", "")
	// The server's socket buffers some megabytes that the client does not read.
	for i := range limit + 16<<10 {
		must.Do(t, os.Rename(long+strconv.Itoa(i), long+strconv.Itoa(i+1)))
	}
	for w.Receive() {
	}
	if connect.CodeOf(w.Err()) != connect.CodeInternal || !strings.Contains(w.Err().Error(), "watcher error") {
		t.Errorf("%v, want internal with watcher error", w.Err())
	}
}

// TestAbandonedWatcher: an abandoned watcher gives its place to another one when there
// is none left.
func TestAbandonedWatcher(t *testing.T) {
	t.Parallel()
	d := serve(t)
	client := d.files()
	create := func() (string, error) {
		created, err := client.CreateWatcher(t.Context(), connect.NewRequest(&filesystem.CreateWatcherRequest{}))
		if err != nil {
			return "", err
		}
		return created.Msg.GetWatcherId(), nil
	}
	id, err := create()
	if err != nil {
		t.Skipf("the machine's own bound is lower: %v", err)
	}
	ws := d.server.watchers
	ws.mu.Lock()
	ws.count += maxWatchers - 1 // until the end of the test
	p := ws.polled[id]
	ws.mu.Unlock()
	defer func() {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		ws.count -= maxWatchers - 1
	}()
	if _, err := create(); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Fatalf("one more: %v, want resource_exhausted", err)
	}
	silent := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.asked = time.Now().Add(-2 * abandoned)
	}
	silent()
	_, err = client.GetWatcherEvents(t.Context(), connect.NewRequest(&filesystem.GetWatcherEventsRequest{WatcherId: id}))
	must.Do(t, err)
	if _, err := create(); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Fatalf("one more, after the first one was asked again: %v, want resource_exhausted", err)
	}
	silent()
	if _, err := create(); err != nil {
		t.Errorf("in the place of the abandoned one: %v", err)
	}
	_, err = client.GetWatcherEvents(t.Context(), connect.NewRequest(&filesystem.GetWatcherEventsRequest{WatcherId: id}))
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("the abandoned one: %v, want not_found", err)
	}
	if _, err := create(); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("yet another one: %v, want resource_exhausted", err)
	}
}

// TestKeptEventsAreBounded: the bound is over all watchers, and the space is free
// again once the events were fetched.
func TestKeptEventsAreBounded(t *testing.T) {
	t.Parallel()
	ws := newWatchers()
	one, other := &polled{all: ws}, &polled{all: ws}
	event := &filesystem.FilesystemEvent{Name: strings.Repeat("x", 4000)}
	n := 0
	for ; one.keep(event) == nil; n++ {
		if n > maxKept/4000 {
			t.Fatalf("%d events of 4,000 bytes are kept, want at most %v", n, maxKept/4000)
		}
	}
	if err := other.keep(event); connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), "16777216") {
		t.Errorf("another watcher: %v, want the bound named", err)
	}
	if events, err := one.take(); len(events) != n || err != nil {
		t.Errorf("%d of %d events, %v, want %d and no error", len(events), n, err, n)
	}
	if err := other.keep(event); err != nil {
		t.Errorf("after they were taken: %v", err)
	}
	other.forget()
	if kept := ws.kept.Load(); kept != 0 {
		t.Errorf("%d bytes are still counted, want 0", kept)
	}
}

// TestWhatEndsAWatch checks that an error of each function that a watch calls ends the watch.
func TestWhatEndsAWatch(t *testing.T) {
	t.Parallel()
	want := errors.New("its client has gone")
	for name, interval := range map[string]time.Duration{"emit": 0, "idle": time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := serve(t)
			w, err := d.server.newWatch(d.home, &filesystem.WatchDirRequest{Path: d.home})
			must.Do(t, err)
			defer func() { must.Do(t, w.close()) }()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			calls := 0
			fail := func() error {
				if calls++; calls > 1 {
					cancel()
				}
				return want
			}
			if name == "emit" {
				put(t, d.home+"/a", "")
				put(t, d.home+"/b", "")
			}
			err = d.server.watchers.run(ctx, w, interval, func(*filesystem.FilesystemEvent) error { return fail() }, fail)
			if !errors.Is(err, want) || calls != 1 {
				t.Errorf("got error %v after %d calls, want %v after the first", err, calls, want)
			}
		})
	}
}

// TestWatchThatCannotBegin checks the code of a watch of too many directories, and that no watch that
// could not begin keeps a descriptor.
func TestWatchThatCannotBegin(t *testing.T) { //nolint:paralleltest // it counts the open files of this process
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it would close what was forgotten
	d := serve(t)
	root := t.TempDir()
	for n := range maxWatchedDirs + 1 {
		must.Do(t, os.Mkdir(root+"/"+strconv.Itoa(n), 0o700))
	}
	before := descriptors(t)["anon_inode:inotify"]
	_, err := d.server.newWatch(root, &filesystem.WatchDirRequest{Path: root, Recursive: true})
	if connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("got error %v, want resource_exhausted", err)
	}
	if after := descriptors(t)["anon_inode:inotify"]; after != before {
		t.Errorf("%d descriptors of watches are open, want %d as before", after, before)
	}
}

// TestWatchOfAShortLivedDirectory checks that a watch goes on when a directory that it was told about
// is gone before it is watched.
func TestWatchOfAShortLivedDirectory(t *testing.T) {
	t.Parallel()
	d := serve(t)
	w, err := d.server.newWatch(d.home, &filesystem.WatchDirRequest{Path: d.home, Recursive: true})
	must.Do(t, err)
	defer func() { must.Do(t, w.close()) }()
	short := d.home + "/short"
	must.Do(t, os.Mkdir(short, 0o700))
	must.Do(t, w.created(short, func(path string, _ filesystem.EventType) error { return os.Remove(path) }))
	if len(w.dirs) != 0 {
		t.Errorf("%v are watched, want the root alone", w.dirs)
	}
}
