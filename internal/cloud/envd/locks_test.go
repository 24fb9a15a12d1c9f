//go:build linux

package envd

import (
	"log/slog"
	"os"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestLocksAreFree checks that no call keeps a lock. Such a lock would otherwise only show in a test that waits
// for ever. It runs before the tests that would wait.
func TestLocksAreFree(t *testing.T) { //nolint:paralleltest // see above
	ps := newProcesses(nil, slog.New(slog.DiscardHandler))
	b := ps.kept
	o, first := newOutput(b)
	r := &running{pid: 7, output: o, end: &process.ProcessEvent_EndEvent{}}
	m := newMetrics(&Options{})
	null, err := os.Open(os.DevNull)
	must.Do(t, err)
	in := newInput(null)
	names := &idNames{file: "/none"}
	fail := func(err error) {
		if err == nil {
			t.Error("got no error")
		}
	}
	locks := map[string]*sync.Mutex{
		"of processes": &ps.mu, "of the budget": &b.mu, "of output": &o.mu, "of publishing": &o.publishing, "of the process": &r.mu,
		"of metrics": &m.mu, "of names": &names.mu, "of the input": &in.mu,
	}
	var second *subscriber
	wantFree(t, locks, []lockingCall{
		{"displaces", func() { o.displaces(1) }},
		{"willReturn", func() { o.willReturn(first) }},
		{"put", func() { o.put(stdout, "x") }},
		{"subscribe", func() { _, _ = o.subscribe() }},
		{"current", func() { o.current() }},
		{"subscribeFrom", func() { second, _, _ = o.subscribeFrom(0, 0) }},
		{"subscribeFrom the future", func() {
			_, _, err := o.subscribeFrom(99, 0)
			fail(err)
		}},
		{"receive", func() { must.Do(t, o.receive(second.stream, 1)) }},
		{"receive the future", func() { fail(o.receive(1, 99)) }},
		{"unsubscribe", func() { o.unsubscribe(second) }},
		{"remove", func() { o.remove(second) }},
		{"dropKept", func() { o.dropKept(true) }},
		{"reclaim", func() { b.used.Add(2 * maxAllKept); b.reclaim(); b.used.Add(-2 * maxAllKept) }},
		{"find", func() { _, _ = ps.find(byPid(7)) }},
		{"findRetired", func() { _, _ = ps.findRetired(byPid(7)) }},
		{"findKept", func() { _, _ = ps.findKept(byPid(7), "") }},
		{"findKept by its id", func() { _, _ = ps.findKept(byPid(7), "id") }},
		{"list", func() { ps.list() }},
		{"followed", func() { ps.open[r] = struct{}{}; ps.followed() }},
		{"forget", func() { ps.forget(r) }},
		{"retire", func() { ps.retire(r, false) }},
		{"retire again", func() { ps.retire(r, false) }},
		{"hasExpired", func() { r.hasExpired() }},
		{"end", o.end},
		{"subscribe after the end", func() { _, _ = o.subscribe() }},
		{"leave", func() { b.leave(o) }},
		{"close", func() { must.Do(t, ps.close()) }},
		{"start after the end", func() {
			_, _, err := ps.start(nil)
			fail(err)
		}},
		{"close of the input", func() { must.Do(t, in.close()) }},
		{"close of the input again", func() { must.Do(t, in.close()) }},
		{"sample", func() { _, _ = m.sample() }},
		{"Resize", func() { (&Server{processes: ps, metrics: m}).Resize(1, 1) }},
		{"name", func() { names.name(5) }},
	})
}

// lockingCall is a call that takes locks.
type lockingCall struct {
	name string
	do   func()
}

// wantFree checks that each of the calls, in turn, keeps none of the locks.
func wantFree(t *testing.T, locks map[string]*sync.Mutex, calls []lockingCall) {
	t.Helper()
	for _, call := range calls {
		done := make(chan struct{})
		go func() {
			defer close(done)
			call.do()
		}()
		patience.Receive(t, call.name, done)
		for name, lock := range locks {
			if !lock.TryLock() {
				t.Fatalf("%s keeps the lock %s", call.name, name)
			}
			lock.Unlock()
		}
	}
}

// TestLocksOfWatchesAreFree checks that no call of a watch keeps a lock. It runs before the tests that would wait.
func TestLocksOfWatchesAreFree(t *testing.T) { //nolint:paralleltest // see above
	ws := newWatchers()
	p := &polled{all: ws, stop: func() {}}
	files := &filesystemService{&Server{watchers: ws}}
	fail := func(err error) {
		if err == nil {
			t.Error("got no error")
		}
	}
	wantFree(t, map[string]*sync.Mutex{"of watchers": &ws.mu, "of a watch": &p.mu}, []lockingCall{
		{"enter", func() { must.Do(t, ws.enter()) }},
		{"leave of a watch", ws.leave},
		{"keep", func() { must.Do(t, p.keep(&filesystem.FilesystemEvent{})) }},
		{"take", func() { _, _ = p.take() }},
		{"fail", func() { p.fail(nil) }},
		{"forget of a watch", p.forget},
		{"evict", func() { ws.mu.Lock(); ws.polled["a"] = p; ws.evict(); ws.mu.Unlock() }},
		{"RemoveWatcher", func() {
			ws.mu.Lock()
			ws.polled["b"] = p
			ws.mu.Unlock()
			_, err := files.RemoveWatcher(t.Context(), connect.NewRequest(&filesystem.RemoveWatcherRequest{WatcherId: "b"}))
			must.Do(t, err)
		}},
		{"RemoveWatcher again", func() {
			_, err := files.RemoveWatcher(t.Context(), connect.NewRequest(&filesystem.RemoveWatcherRequest{WatcherId: "b"}))
			fail(err)
		}},
		{"GetWatcherEvents", func() {
			_, err := files.GetWatcherEvents(t.Context(), connect.NewRequest(&filesystem.GetWatcherEventsRequest{WatcherId: "b"}))
			fail(err)
		}},
		{"close of watches", func() { must.Do(t, ws.close()) }},
		{"enter after the end", func() { fail(ws.enter()) }},
	})
}

// TestUploadLocksAreFree checks that an overwritten file can be overwritten again, whether or not that failed.
func TestUploadLocksAreFree(t *testing.T) { //nolint:paralleltest // it runs before the tests that would wait
	s := &Server{}
	f, err := os.Create(t.TempDir() + "/file")
	must.Do(t, err)
	defer f.Close()
	user := &User{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
	for name, number := range map[string]uint32{"no call": unix.SYS_GETPID, "fchown": unix.SYS_FCHOWN, "write": unix.SYS_WRITE, "fstat": unix.SYS_FSTAT} {
		_, err := calltest.FailNth(t, number, 1, unix.EIO, func() error {
			_, err := s.replace(f, &received{head: []byte("x"), size: 1}, user, nil)
			return err
		})
		if (err == nil) != (name == "no call") {
			t.Errorf("%s fails: got error %v", name, err)
		}
		for n := range s.uploadLocks {
			if !s.uploadLocks[n].TryLock() {
				t.Fatalf("%s fails: the lock %d is kept", name, n)
			}
			s.uploadLocks[n].Unlock()
		}
	}
}
