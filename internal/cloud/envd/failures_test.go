//go:build linux

package envd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// TestAccountsThatCannotBeMade breaks each file that a new account needs in turn: the request fails.
func TestAccountsThatCannotBeMade(t *testing.T) {
	t.Parallel()
	for _, broken := range []string{"passwd", "group", "shadow", "sudoers", "home", ""} {
		dir := t.TempDir()
		d := serve(t)
		d.server.users.passwd.file, d.server.users.group.file, d.server.homes = dir+"/passwd", dir+"/group", dir+"/homes"
		put(t, dir+"/passwd", "root:x:0:0::/root:/bin/sh\nold:x:1001:1001::/:/bin/sh\n")
		put(t, dir+"/group", "")
		put(t, dir+"/shadow", "x")
		name := "new"
		switch broken {
		case "home":
			put(t, dir+"/homes", "")
		case "sudoers":
			name = "old"
			fallthrough
		default:
			if broken != "" {
				must.Do(t, errors.Join(os.RemoveAll(dir+"/"+broken), os.Mkdir(dir+"/"+broken, 0o700)))
			}
		}
		want := http.StatusUnprocessableEntity
		if broken == "" {
			if os.Getuid() != 0 {
				continue // it gives the home away
			}
			want = http.StatusOK
		}
		if res, body := d.do(t, "POST", "/local/account?sudo=true&name="+name, ""); res.StatusCode != want {
			t.Errorf("%q is broken: got %d %s, want %d", broken, res.StatusCode, body, want)
		}
	}
}

// TestAddLine checks where a line is added, and when none is.
func TestAddLine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	for _, tt := range []struct {
		line, want string
		added      bool
	}{
		{"a", "a\n", true}, {"a", "a\n", false}, {"b", "a\nb\n", true}, {"a", "a\nb\n", false}, {"", "a\nb\n", false},
	} {
		if added, err := addLine(path, tt.line, 0o640); added != tt.added || err != nil || content(t, path) != tt.want {
			t.Errorf("%q: added %v, error %v, and the file has %q, want %v and %q", tt.line, added, err, content(t, path), tt.added, tt.want)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o640 {
		t.Errorf("got %v and error %v, want mode 0640", info.Mode(), err)
	}
	put(t, path, "no end")
	if added, err := addLine(path, "next", 0o600); !added || err != nil || content(t, path) != "no end\nnext\n" {
		t.Errorf("after a line without an end: added %v, error %v, and the file has %q", added, err, content(t, path))
	}
	for _, missing := range []string{path + "/below", filepath.Dir(path)} {
		if added, err := addLine(missing, "a", 0o600); added || err == nil {
			t.Errorf("%s: added %v and error %v, want an error", missing, added, err)
		}
	}
	if got, err := head(path, 3); string(got) != "no " || err != nil {
		t.Errorf("the head: got %q and error %v", got, err)
	}
}

// TestAsInFiles checks that the ids of a user without a credential stay.
func TestAsInFiles(t *testing.T) {
	t.Parallel()
	root := account("root", passwdFile, groupFile)
	if root == nil {
		t.Fatal("this machine has no root")
	}
	if got := AsInFiles(User{Name: "root", UID: 5, GID: 6}); got.UID != 5 || got.GID != 6 || got.Credential != nil || got.Home+got.Shell != root.Home+root.Shell {
		t.Errorf("got %+v, want the ids 5 and 6", got)
	}
	if got := AsInFiles(User{Name: "root", UID: 5, Credential: &syscall.Credential{Uid: 5}}); got.UID != 0 || got.Credential == nil || got.Credential.Uid != 0 {
		t.Errorf("got %+v, want the ids of the file", got)
	}
	if got := AsInFiles(User{Name: "nobody:here", UID: 5, Home: "/here"}); got.Name != "nobody:here" || got.UID != 5 || got.Home != "/here" {
		t.Errorf("got %+v, want it as it was", got)
	}
}

// TestOldestClients checks that the oldest clients get only names, types and paths in every answer.
func TestOldestClients(t *testing.T) {
	t.Parallel()
	full := func() *filesystem.EntryInfo {
		return &filesystem.EntryInfo{Name: "a", Type: isFile, Path: "/a", Size: 1, Owner: "me"}
	}
	events := []*filesystem.FilesystemEvent{{Name: "a", Entry: full()}, {Name: "b", Entry: full()}}
	stat, made, moved := &filesystem.StatResponse{Entry: full()}, &filesystem.MakeDirResponse{Entry: full()}, &filesystem.MoveResponse{Entry: full()}
	list := &filesystem.ListDirResponse{Entries: []*filesystem.EntryInfo{full(), full()}}
	polled := &filesystem.GetWatcherEventsResponse{Events: events}
	for _, msg := range []any{stat, made, moved, list, polled, &filesystem.RemoveResponse{}, &filesystem.WatchDirResponse{}} {
		stripReply(msg)
	}
	for i, entry := range []*filesystem.EntryInfo{stat.GetEntry(), made.GetEntry(), moved.GetEntry(), list.GetEntries()[0], list.GetEntries()[1]} {
		if want := (&filesystem.EntryInfo{Name: "a", Type: isFile, Path: "/a"}); !proto.Equal(entry, want) {
			t.Errorf("the entry %d: got %v, want %v", i, entry, want)
		}
	}
	if events[0].GetEntry() != nil || events[1].GetEntry() != nil || events[1].GetName() != "b" {
		t.Errorf("got the events %v, want none with an entry", events)
	}
	for agent, want := range map[string]string{"connect-python": "true", "connect-python/1": ""} {
		for _, failure := range []error{nil, errors.New("failed")} {
			req := connect.NewRequest(&filesystem.StatRequest{})
			req.Header().Set("User-Agent", agent)
			reply := connect.NewResponse(&filesystem.StatResponse{Entry: full()})
			_, err := (legacyClients{}).WrapUnary(func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) { return reply, failure })(t.Context(), req)
			if err != failure { //nolint:errorlint // it is the same one
				t.Errorf("%s: got error %v, want %v", agent, err, failure)
			}
			if got := reply.Header().Get("X-E2B-Legacy-SDK"); failure == nil && got != want {
				t.Errorf("%s: marked %q, want %q", agent, got, want)
			}
		}
	}
}

// TestFollowEndsWithItsClient checks that a stream ends at the first message that cannot be sent.
func TestFollowEndsWithItsClient(t *testing.T) {
	t.Parallel()
	want := errors.New("its client has gone")
	for sent := range 4 {
		b := newBudget()
		o, first := newOutput(b)
		o.put(stdout, "kept")
		o.unsubscribe(first)
		s, _, err := o.subscribeFrom(0, 0)
		must.Do(t, err)
		o.put(stdout, "new")
		o.end()
		calls, trailer := 0, http.Header{}
		err = follow(patience.Context(t), &running{output: o, held: true, end: &process.ProcessEvent_EndEvent{}}, s, http.Header{}, trailer, func(*process.ProcessEvent) error {
			if calls++; calls > sent {
				return want
			}
			return nil
		})
		if !errors.Is(err, want) || calls != sent+1 {
			t.Errorf("after %d messages: got error %v after %d calls", sent, err, calls)
		}
		select {
		case <-s.gone:
		default:
			t.Errorf("after %d messages: the subscriber stays", sent)
		}
		if got := trailer.Get(protocol.TrailerOutputHeld); b.replays.Load() != 0 || (got == "true") != (sent == 3) {
			t.Errorf("after %d messages: %d bytes wait to be sent again, and the trailer is %q", sent, b.replays.Load(), got)
		}
	}
	for code, tt := range map[connect.Code]struct{ cut, expired bool }{connect.CodeResourceExhausted: {cut: true}, connect.CodeDeadlineExceeded: {expired: true}} {
		err := conclude(&running{expired: tt.expired}, &subscriber{cut: tt.cut}, nil, func(*process.ProcessEvent) error { return nil })
		if connect.CodeOf(err) != code {
			t.Errorf("got error %v, want %v", err, code)
		}
	}
}

// TestReplayIsFreeBeforeTheEnd checks that output which was sent again takes no memory while its stream goes on.
func TestReplayIsFreeBeforeTheEnd(t *testing.T) {
	t.Parallel()
	b := newBudget()
	o, first := newOutput(b)
	o.put(stdout, "kept")
	o.unsubscribe(first)
	s, _, err := o.subscribeFrom(0, 0)
	must.Do(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- follow(ctx, &running{output: o}, s, http.Header{}, nil, func(*process.ProcessEvent) error { return nil })
	}()
	patience.Until(t, "the memory is free", func() bool { return b.replays.Load() == 0 })
	cancel()
	if err := patience.Receive(t, "the end of the stream", ended); connect.CodeOf(err) != connect.CodeCanceled {
		t.Errorf("got error %v, want %v", err, connect.CodeCanceled)
	}
	late, end := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer end()
	if err := contextFailure(late); connect.CodeOf(err) != connect.CodeDeadlineExceeded {
		t.Errorf("after a deadline: got error %v", err)
	}
}

// TestStartWhileItCloses checks that a process which starts while the sandbox ends is killed at once, and
// that none starts later.
func TestStartWhileItCloses(t *testing.T) {
	t.Parallel()
	d := serve(t)
	ps := d.server.processes
	l := &launch{config: shell("sleep 60").GetProcess(), user: d.server.users.fallback, dir: d.home, pty: &process.PTY{}}
	l.terminal = func() (*os.File, *os.File, error) {
		ps.mu.Lock()
		ps.closed = true
		ps.mu.Unlock()
		return d.server.terminal(t.Context())
	}
	r, _, err := ps.start(l)
	must.Do(t, err)
	patience.Receive(t, "the end of the process", r.ended)
	if !r.output.isAbandoned() || r.end.GetExited() {
		t.Errorf("got the end %v, want a kill", r.end)
	}
	if _, _, err := ps.start(l); !errors.Is(err, errClosed) {
		t.Errorf("later: got error %v, want %v", err, errClosed)
	}
}

// TestKillGivesUp checks that a kill waits no longer than its request for a process that does not end.
func TestKillGivesUp(t *testing.T) {
	t.Parallel()
	d := serve(t)
	ps := newProcesses(nil, slog.New(slog.DiscardHandler))
	l := &launch{config: shell("sleep 60").GetProcess(), user: d.server.users.fallback, dir: d.home, kept: ps.kept, memory: ps.memory}
	r, first, err := l.start() // nobody waits for its end
	must.Do(t, err)
	ps.live[r.pid] = r
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ps.kill(ctx, r); err != nil || len(ps.retired) != 0 {
		t.Errorf("got error %v and %d records, want that it runs", err, len(ps.retired))
	}
	r.wait()
	r.output.unsubscribe(first)
	if err := ps.kill(t.Context(), r); err != nil || len(ps.retired) != 1 || ps.live[r.pid] != nil {
		t.Errorf("after the end: got error %v and %d records, want one", err, len(ps.retired))
	}
	close(r.output.abandoned)
	r.finish()
	r.linger()
}

// TestUndelivered checks that output for a subscriber that has gone, or that nobody will read, is not waited for.
func TestUndelivered(t *testing.T) {
	t.Parallel()
	for _, oldest := range []bool{true, false} {
		for name, end := range map[string]func(*output, *subscriber){
			"gone":      func(_ *output, s *subscriber) { s.leave() },
			"abandoned": func(o *output, _ *subscriber) { close(o.abandoned) },
		} {
			o, s := newOutput(newBudget())
			for range queuedChunks {
				s.chunks <- newChunk(stdout)
			}
			end(o, s)
			delivered := make(chan bool, 1)
			go func() { delivered <- o.deliver(s, newChunk(stdout), oldest) }()
			if patience.Receive(t, "the end of the delivery", delivered) || s.cut {
				t.Errorf("%s, oldest %v: it was delivered, or the subscriber was cut off: %v", name, oldest, s.cut)
			}
		}
	}
}

// TestBadMetadata checks which headers of an upload are refused, and that attributes that cannot be
// written are an error.
func TestBadMetadata(t *testing.T) {
	t.Parallel()
	for name, values := range map[string][]string{"X-Metadata-Ü": {"x"}, "X-Metadata-A": {"\x7f"}, "X-Metadata-B": {"ü"}} {
		if got, err := parseMetadata(http.Header{name: values}); err == nil {
			t.Errorf("%s: %q: got %v, want an error", name, values, got)
		}
	}
	got, err := parseMetadata(http.Header{"X-Metadata-": {"x"}, "X-Metadata-None": {}, "X-Other": {"x"}, "X-Metadata-Some-Key": {"a", "b"}})
	if err != nil || len(got) != 1 || got["some-key"] != "a" {
		t.Errorf("got %v and error %v, want the first value of the key", got, err)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "a"))
	must.Do(t, err)
	must.Do(t, f.Close())
	if _, err := writeMetadata(f, map[string]string{"a": "b"}); !errors.Is(err, unix.EBADF) {
		t.Errorf("of a closed file: got error %v, want %v", err, unix.EBADF)
	}
	if got := attributes(func([]byte) (int, error) { return 0, unix.ENOTSUP }); got != nil {
		t.Errorf("without attributes: got %q", got)
	}
	calls := 0
	if got := attributes(func([]byte) (int, error) { calls++; return 5, []error{nil, unix.ERANGE}[calls-1] }); got != nil {
		t.Errorf("with more attributes meanwhile: got %q", got)
	}
	if got := attributes(func(buf []byte) (int, error) {
		return copy(buf, metadataPrefix+"a\x00other\x00"+metadataPrefix+"b\x00") + 50*(1-min(len(buf), 1)), nil
	}); strings.Join(got, " ") != metadataPrefix+"a "+metadataPrefix+"b" {
		t.Errorf("got %q, want a and b", got)
	}
}

// TestWatchForgets checks what a watch knows after each kind of change: of a path that is gone it knows nothing, and of
// a directory with another name nothing below it either.
func TestWatchForgets(t *testing.T) {
	t.Parallel()
	d := serve(t)
	must.Do(t, os.MkdirAll(d.home+"/dir/below", 0o700))
	put(t, d.home+"/dir/below/file", "")
	put(t, d.home+"/dirt", "")
	all := []string{"dir", "dir/below", "dir/below/file", "dirt"}
	for mask, want := range map[uint32][]string{
		unix.IN_MOVED_FROM: {"dirt"}, unix.IN_MOVE_SELF: {"dirt"}, unix.IN_DELETE: all[1:], unix.IN_DELETE_SELF: all[1:],
		unix.IN_MODIFY: all, unix.IN_ATTRIB: all,
	} {
		w, err := d.server.newWatch(d.home, &filesystem.WatchDirRequest{Path: d.home, Recursive: true})
		must.Do(t, err)
		w.reported = map[string]inode{}
		for _, name := range all {
			w.reported[d.home+"/"+name] = inode{}
		}
		must.Do(t, w.handle(change{path: d.home + "/dir", mask: mask}, func(*filesystem.FilesystemEvent) error { return nil }))
		dirs := map[string]bool{}
		reported := map[string]inode{}
		for _, name := range want {
			reported[d.home+"/"+name] = inode{}
			if name == "dir" || name == "dir/below" {
				dirs[d.home+"/"+name] = true
			}
		}
		if diff := cmp.Diff(dirs, w.dirs); diff != "" {
			t.Errorf("%#x: directories (-want +got):\n%s", mask, diff)
		}
		if !maps.Equal(reported, w.reported) {
			t.Errorf("%#x: got the reported files %v, want %v", mask, w.reported, reported)
		}
		if want := 1 + len(dirs); len(w.notify.ids) != want {
			t.Errorf("%#x: %d directories are watched, want %d", mask, len(w.notify.ids), want)
		}
		must.Do(t, w.notify.close())
	}
}

// TestWatchPassesErrorsOn checks that the first error of a client ends the report of a change of any kind.
func TestWatchPassesErrorsOn(t *testing.T) {
	t.Parallel()
	d := serve(t)
	w, err := d.server.newWatch(d.home, &filesystem.WatchDirRequest{Path: d.home, Recursive: true})
	must.Do(t, err)
	must.Do(t, os.MkdirAll(d.home+"/new/below/deep", 0o700))
	want := errors.New("its client has gone")
	for _, mask := range []uint32{unix.IN_CREATE, unix.IN_MOVED_TO, unix.IN_MOVED_FROM, unix.IN_MOVE_SELF, unix.IN_ATTRIB, unix.IN_MODIFY, unix.IN_DELETE, unix.IN_DELETE_SELF} {
		calls := 0
		err := w.handle(change{path: d.home + "/new", mask: mask | unix.IN_CREATE}, func(*filesystem.FilesystemEvent) error { calls++; return want })
		if !errors.Is(err, want) || calls != 1 {
			t.Errorf("%#x: got error %v after %d calls", mask, err, calls)
		}
		err = w.handle(change{path: d.home + "/gone", mask: mask}, func(*filesystem.FilesystemEvent) error { return want })
		if !errors.Is(err, want) {
			t.Errorf("%#x of a missing file: got error %v", mask, err)
		}
	}
	for _, last := range []int{2, 3} {
		clear(w.dirs)
		calls := 0
		err = w.handle(change{path: d.home + "/new", mask: unix.IN_CREATE}, func(*filesystem.FilesystemEvent) error {
			if calls++; calls == last {
				return want
			}
			return nil
		})
		if !errors.Is(err, want) || calls != last {
			t.Errorf("below a new directory: got error %v after %d calls, want one after %d", err, calls, last)
		}
	}
	must.Do(t, w.notify.close())
	if _, err := w.take(nil); connect.CodeOf(err) != connect.CodeInternal {
		t.Errorf("a broken watch: got error %v, want %v", err, connect.CodeInternal)
	}
	if w.failed == nil || w.catchUp(nil) {
		t.Errorf("it goes on after %v", w.failed)
	}
}

// TestSignsOfLife checks when a stream that has nothing to say shows that it lives.
func TestSignsOfLife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, s := newOutput(newBudget())
		began := time.Now()
		time.AfterFunc(25*time.Second, func() { o.put(stdout, "x") })
		time.AfterFunc(36*time.Second, func() { wake(s.asked) })
		time.AfterFunc(47*time.Second, func() { o.end() })
		var got []string
		err := follow(t.Context(), &running{pid: 7, output: o, end: &process.ProcessEvent_EndEvent{}}, s, http.Header{"Keepalive-Ping-Interval": {"10"}}, nil, func(e *process.ProcessEvent) error {
			got = append(got, fmt.Sprintf("%v %T", time.Since(began), e.GetEvent()))
			return nil
		})
		must.Do(t, err)
		want := []string{
			"0s *process.ProcessEvent_Start", "10s *process.ProcessEvent_Keepalive", "20s *process.ProcessEvent_Keepalive", "25s *process.ProcessEvent_Data",
			"35s *process.ProcessEvent_Keepalive", "36s *process.ProcessEvent_Data", "46s *process.ProcessEvent_Keepalive", "47s *process.ProcessEvent_End",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestEndOfAClient checks that a stream ends with its context, and when its client has connected again.
func TestEndOfAClient(t *testing.T) {
	t.Parallel()
	for want, end := range map[connect.Code]func(s *subscriber, cancel context.CancelFunc){
		connect.CodeAborted: func(s *subscriber, _ context.CancelFunc) { s.leave() }, connect.CodeCanceled: func(_ *subscriber, cancel context.CancelFunc) { cancel() },
	} {
		o, s := newOutput(newBudget())
		ctx, cancel := context.WithCancel(t.Context())
		end(s, cancel)
		if err := follow(ctx, &running{output: o}, s, http.Header{}, nil, func(*process.ProcessEvent) error { return nil }); connect.CodeOf(err) != want {
			t.Errorf("got error %v, want %v", err, want)
		}
		cancel()
		if n := len(o.current()); n != 0 {
			t.Errorf("%v: %d subscribers are left", want, n)
		}
	}
}

// TestLowestPid checks that a tag of several processes selects the one with the lowest pid, and that a list is
// in the order of pids.
func TestLowestPid(t *testing.T) {
	t.Parallel()
	ps := newProcesses(nil, slog.New(slog.DiscardHandler))
	for pid := range uint32(40) {
		r := &running{pid: 100 - pid, tag: proto.String("other")}
		if pid%2 == 0 {
			r.tag = proto.String("many")
		}
		ps.live[r.pid] = r
	}
	ps.live[1] = &running{pid: 1}
	for tag, want := range map[string]uint32{"many": 62, "other": 61, "": 0} {
		if r, err := ps.find(byTag(tag)); (r == nil) != (want == 0) || (err == nil) != (r != nil) || r != nil && r.pid != want {
			t.Errorf("%q: got %+v and error %v, want %d", tag, r, err, want)
		}
	}
	for i, info := range ps.list() {
		if want := uint32(max(1, 60+i)); i > 0 && info.GetPid() != want || i == 0 && info.GetPid() != 1 {
			t.Errorf("the process %d of the list has the pid %d, want %d", i, info.GetPid(), want)
		}
	}
}

// TestOutOfMemory checks that the end of a process says that the limit of memory ended it.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	for kills, want := range map[int]string{0: "signal: killed", 1: "signal: killed (out of memory: the sandbox's limit is 7 MiB)"} {
		var counted atomic.Int64
		d := serve(t, func(o *Options) {
			o.Memory = &child.Memory{Limit: 7 << 20, Kills: func() int { return int(counted.Load()) }}
		})
		s, pid := d.begin(t, connect.NewRequest(shell("sleep 60")))
		counted.Store(int64(kills))
		d.kill(t, pid, process.Signal_SIGNAL_SIGKILL)
		if r, err := collect(s); err != nil || r.end.GetError() != want || r.end.GetStatus() != "signal: killed" {
			t.Errorf("%d killed: got %v and error %v, want %q", kills, r.end, err, want)
		}
	}
}

// brokenWriter is the answer to a client that has gone.
type brokenWriter struct{ *httptest.ResponseRecorder }

func (brokenWriter) Write([]byte) (int, error) { return 0, unix.EPIPE }

// TestAnswersToClientsThatHaveGone checks that answers that cannot be sent are broken off, so that they are not
// taken as complete.
func TestAnswersToClientsThatHaveGone(t *testing.T) {
	t.Parallel()
	d := serve(t)
	put(t, d.home+"/a", "text")
	for name, send := range map[string]func(w http.ResponseWriter){
		"an archive": func(w http.ResponseWriter) {
			d.server.pack(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/local/pack?source="+d.home+"/a", nil))
		},
		"a file of the kernel": func(w http.ResponseWriter) {
			f, err := os.Open("/proc/self/status")
			must.Do(t, err)
			defer f.Close()
			sendSizeless(w, f)
		},
	} {
		func() {
			defer func() {
				if got := recover(); got != http.ErrAbortHandler { //nolint:errorlint // it is compared as the server does
					t.Errorf("%s: got %v, want the answer to be broken off", name, got)
				}
			}()
			send(brokenWriter{httptest.NewRecorder()})
		}()
	}
	dir, err := os.Open(d.home)
	must.Do(t, err)
	defer dir.Close()
	if sendSizeless(httptest.NewRecorder(), dir) {
		t.Error("what cannot be read was sent")
	}
}

// TestUploadOfUnknownLength checks the answer about a full disk if the length of the upload is not known.
func TestUploadOfUnknownLength(t *testing.T) {
	t.Parallel()
	d := serve(t)
	for length, want := range map[int64]string{-1: "not enough disk space available", 4: "attempted to write 4 bytes: not enough disk space available"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/files?path=/dev/full", strings.NewReader("text"))
		r.ContentLength = length
		r.Header.Set("Content-Type", octets)
		w := httptest.NewRecorder()
		d.server.upload(w, r)
		if w.Code != http.StatusInsufficientStorage || w.Body.String() != `{"code":507,"message":"`+want+`"}`+"\n" {
			t.Errorf("a length of %d: got %d %s, want %q", length, w.Code, w.Body, want)
		}
	}
}
