//go:build linux

package envd

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestRefusedBuildTakesTheBody checks that a refused request of a build is read to its end: the client
// sends all of it before it reads the answer.
func TestRefusedBuildTakesTheBody(t *testing.T) {
	t.Parallel()
	body := strings.NewReader(strings.Repeat("x", 1<<20))
	w := httptest.NewRecorder()
	building(func(*http.Request, url.Values) (any, error) { return nil, errors.New("no such user") })(w, httptest.NewRequestWithContext(t.Context(), "POST", "/local/place", body))
	if body.Len() != 0 || w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), "no such user") {
		t.Errorf("got %d %s, and %d bytes were not read", w.Code, w.Body, body.Len())
	}
}

// fakeConn is a stream of one call.
type fakeConn struct {
	connect.StreamingHandlerConn
	request, response http.Header
	receive           error
	sent              any
}

func (c *fakeConn) RequestHeader() http.Header  { return c.request }
func (c *fakeConn) ResponseHeader() http.Header { return c.response }
func (c *fakeConn) Receive(any) error           { return c.receive }
func (c *fakeConn) Send(msg any) error          { c.sent = msg; return nil }

// TestCutMessages checks that only a message that is cut off is the client's mistake.
func TestCutMessages(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want connect.Code
	}{
		{connect.NewError(connect.CodeInternal, io.ErrUnexpectedEOF), connect.CodeInvalidArgument},
		{connect.NewError(connect.CodeInternal, errors.New("broken")), connect.CodeInternal},
		{connect.NewError(connect.CodeResourceExhausted, io.ErrUnexpectedEOF), connect.CodeResourceExhausted},
	} {
		if err := (cutConn{&fakeConn{receive: tt.err}}).Receive(nil); connect.CodeOf(err) != tt.want {
			t.Errorf("%v: got %v, want the code %v", tt.err, err, tt.want)
		}
	}
	must.Is(t, cutConn{&fakeConn{receive: io.EOF}}.Receive(nil), io.EOF)
}

// TestLegacyWatch checks that only old clients get events without the fields that would stop them.
func TestLegacyWatch(t *testing.T) {
	t.Parallel()
	for agent, legacy := range map[string]bool{"connect-python": true, "connect-python/0.4": false, "": false} {
		conn := &fakeConn{request: http.Header{"User-Agent": {agent}}, response: http.Header{}}
		err := legacyClients{}.WrapStreamingHandler(func(_ context.Context, conn connect.StreamingHandlerConn) error {
			event := &filesystem.FilesystemEvent{Name: "a", Entry: &filesystem.EntryInfo{Name: "a"}}
			return conn.Send(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Filesystem{Filesystem: event}})
		})(t.Context(), conn)
		must.Do(t, err)
		sent := conn.sent.(*filesystem.WatchDirResponse).GetFilesystem()
		if sent.GetName() != "a" || (sent.GetEntry() == nil) != legacy || (conn.response.Get("X-E2B-Legacy-SDK") == "true") != legacy {
			t.Errorf("%q: got %v and %v, want it without an entry, and marked: %v", agent, sent, conn.response, legacy)
		}
	}
}

// TestOwned checks that files stay this process's where it cannot give them away, and that every
// other failure is one.
func TestOwned(t *testing.T) {
	t.Parallel()
	one, several := &User{}, &User{Credential: &syscall.Credential{}}
	for _, tt := range []struct {
		user      *User
		err, want error
	}{
		{one, nil, nil}, {one, fs.ErrPermission, nil}, {one, unix.EROFS, unix.EROFS},
		{several, nil, nil}, {several, fs.ErrPermission, fs.ErrPermission}, {several, unix.EROFS, unix.EROFS},
	} {
		if err := owned(tt.user, tt.err); !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
			t.Errorf("%+v, %v: got error %v, want %v", tt.user, tt.err, err, tt.want)
		}
	}
}

// TestBrokenDownload checks that a compressed answer that cannot be completed is broken off.
func TestBrokenDownload(t *testing.T) {
	t.Parallel()
	f, err := os.Open(t.TempDir()) // reading a directory fails
	must.Do(t, err)
	defer f.Close()
	defer func() {
		if got := recover(); got != http.ErrAbortHandler { //nolint:errorlint // it is compared as the server does
			t.Errorf("got %v, want the answer to be broken off", got)
		}
	}()
	sendCompressed(httptest.NewRecorder(), f)
}

// TestListIsBounded checks the number of entries of a list, and that a list ends with its request.
func TestListIsBounded(t *testing.T) {
	t.Parallel()
	d := serve(t)
	put(t, filepath.Join(d.home, "a"), "")
	put(t, filepath.Join(d.home, "b"), "")
	found, err := readDir(d.home)
	must.Do(t, err)
	for before, fits := range map[int]bool{maxEntries - 3: true, maxEntries - 2: true, maxEntries - 1: false} {
		l := listing{server: d.server, entries: make([]*filesystem.EntryInfo, before)}
		err := l.add(t.Context(), d.home, d.home, found, 1)
		if (err == nil) != fits || err != nil && connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("2 entries after %d: got error %v, want them to fit: %v", before, err, fits)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	l := listing{server: d.server}
	if err := l.add(ended, d.home, d.home, found, 1); connect.CodeOf(err) != connect.CodeCanceled || len(l.entries) > 0 {
		t.Errorf("after the request: got %d entries and error %v, want none", len(l.entries), err)
	}
}

// TestMovedDirectoryIsForgotten checks that a directory that was moved, whose path is no longer known,
// is not watched any longer.
func TestMovedDirectoryIsForgotten(t *testing.T) {
	t.Parallel()
	n, err := newInotify()
	must.Do(t, err)
	defer func() { must.Do(t, n.close()) }()
	dir := t.TempDir()
	must.Do(t, n.add(dir, followed|itself))
	id := n.ids[dir]
	if c, ok := n.change(id, unix.IN_MOVE_SELF, ""); !ok || c.path != dir {
		t.Errorf("got %+v, %v, want the move", c, ok)
	}
	if c, ok := n.change(id, unix.IN_CREATE, "a"); ok || len(n.dirs)+len(n.ids) > 0 {
		t.Errorf("afterwards: got %+v, and %v is watched, want nothing", c, n.dirs)
	}
}

// TestMetadataIsBounded checks the size of metadata, prefixes, keys and values together, and the
// length of a key.
func TestMetadataIsBounded(t *testing.T) {
	t.Parallel()
	for beyond, fits := range map[int]bool{-1: true, 0: true, 1: false} {
		rest := maxMetadata - 2*(len(metadataPrefix)+1) - 100 + beyond
		header := http.Header{metadataHeader + "A": {strings.Repeat("x", 100)}, metadataHeader + "B": {strings.Repeat("x", rest)}}
		if got, err := parseMetadata(header); (err == nil) != fits || err == nil && len(got) != 2 {
			t.Errorf("%d bytes beyond the bound: got %d and error %v, want it to fit: %v", beyond, len(got), err, fits)
		}
		header = http.Header{metadataHeader + strings.Repeat("K", maxMetadataKey+beyond): {"x"}}
		if _, err := parseMetadata(header); (err == nil) != fits {
			t.Errorf("a key %d bytes beyond the bound: got error %v, want it to fit: %v", beyond, err, fits)
		}
	}
}

// TestMetadataOfOthers checks that attributes that programs in the sandbox set are metadata only if
// they are text.
func TestMetadataOfOthers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	put(t, path, "")
	if err := unix.Setxattr(path, metadataPrefix+"good", []byte("ü"), 0); errors.Is(err, unix.ENOTSUP) {
		t.Skip("the filesystem of the temporary directory takes no extended attributes")
	}
	must.Do(t, errors.Join(unix.Setxattr(path, metadataPrefix+"bad", []byte{0xff}, 0), unix.Setxattr(path, metadataPrefix+"\xff", []byte("x"), 0), unix.Setxattr(path, "user.other", []byte("x"), 0)))
	info, err := os.Lstat(path)
	must.Do(t, err)
	if got := readMetadata(path, info); len(got) != 1 || got["good"] != "ü" {
		t.Errorf("got %q, want what is text", got)
	}
	_, err = calltest.FailNth(t, unix.SYS_LGETXATTR, 1, unix.ENODATA, func() error {
		for n := range 3 { // the order of the names differs between filesystems
			if got := readMetadata(path, info); len(got) > 1 || n > 0 && got["good"] != "ü" {
				t.Errorf("with an attribute that is gone: got %q", got)
			}
		}
		return nil
	})
	must.Do(t, err)
	dir := filepath.Dir(path)
	must.Do(t, unix.Setxattr(dir, metadataPrefix+"of", []byte("a directory"), 0))
	info, err = os.Lstat(dir)
	must.Do(t, err)
	if got := readMetadata(dir, info); len(got) != 1 || got["of"] != "a directory" {
		t.Errorf("of a directory: got %q", got)
	}
}

// TestMetadataThatCannotBeKept checks for which errors a file has no metadata, and for which an upload fails.
func TestMetadataThatCannotBeKept(t *testing.T) {
	t.Parallel()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	must.Do(t, err)
	defer f.Close()
	metadata := map[string]string{"key": "value"}
	if kept, err := writeMetadata(f, metadata); err != nil || kept == nil {
		t.Skip("the filesystem of the temporary directory takes no extended attributes")
	}
	for _, tt := range []struct {
		number uint32
		as     unix.Errno
		write  map[string]string
		kept   int
		want   error
	}{
		{unix.SYS_FSETXATTR, 0, metadata, 1, nil},
		{unix.SYS_FSETXATTR, unix.ENOTSUP, metadata, 0, nil},
		{unix.SYS_FSETXATTR, unix.EPERM, metadata, 0, nil},
		{unix.SYS_FSETXATTR, unix.ENOSPC, metadata, 0, unix.ENOSPC},
		{unix.SYS_FREMOVEXATTR, unix.ENODATA, nil, 0, nil},
		{unix.SYS_FREMOVEXATTR, unix.EIO, nil, 0, unix.EIO},
		{unix.SYS_FREMOVEXATTR, unix.EIO, metadata, 1, nil}, // it removes none
		{unix.SYS_FLISTXATTR, unix.EIO, metadata, 1, nil},
	} {
		var kept map[string]string
		_, err := calltest.FailNth(t, tt.number, 1, tt.as, func() (err error) { kept, err = writeMetadata(f, tt.write); return err })
		if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) || len(kept) != tt.kept {
			t.Errorf("%v of call %d: got %q and error %v, want %d values and error %v", tt.as, tt.number, kept, err, tt.kept, tt.want)
		}
	}
}

// TestPrivateMemory checks that memory which processes share is not counted for each of them.
func TestPrivateMemory(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "statm")
	for text, pages := range map[string]uint64{"100 50 20 1 0 2 0\n": 30, "100 50 50": 0, "100 20 50": 0, "100 50": 0, "a b c": 0, "": 0} {
		put(t, path, text)
		if got := privateMemory(path); got != pages*uint64(os.Getpagesize()) {
			t.Errorf("%q: got %d bytes, want %d pages", text, got, pages)
		}
	}
	if got := privateMemory(path + " gone"); got != 0 {
		t.Errorf("of a process that has ended: got %d, want 0", got)
	}
}

// descriptors counts what this process has open: by the kind of pipes, sockets and the like, and by the
// names of all else.
func descriptors(t *testing.T) map[string]int {
	t.Helper()
	all := map[string]int{}
	links, err := filepath.Glob("/proc/self/fd/*")
	must.Do(t, err)
	for _, link := range links {
		name, err := os.Readlink(link)
		if kind, _, numbered := strings.Cut(name, ":["); numbered && kind != "anon_inode" {
			name = kind
		}
		if err == nil {
			all[name]++
		}
	}
	return all
}

// TestNothingStaysOpen checks that no request leaves a descriptor open: of a process, its terminal,
// its output or a file.
func TestNothingStaysOpen(t *testing.T) { //nolint:paralleltest // it counts the open files of this process
	use := func(t *testing.T) {
		d := serve(t)
		d.run(t, shell("echo text; cat"))
		d.run(t, shell("sleep 0.01 & exit 3"))
		terminal := shell("exit 4")
		terminal.Pty = &process.PTY{Size: &process.PTY_Size{Cols: 80, Rows: 24}}
		d.run(t, terminal)
		put(t, filepath.Join(d.home, "a"), "text")
		for _, path := range []string{"a", "none", "."} {
			d.do(t, "GET", "/files?path="+path, "", "Accept-Encoding", "gzip")
			d.do(t, "POST", "/files?path="+path, "text", "Content-Type", "application/octet-stream")
		}
		for _, sources := range []string{`"a","gone"`, `"a","a"`} {
			d.do(t, "POST", "/files/compose", `{"source_paths":[`+sources+`],"destination":"c"}`)
		}
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it would close what was forgotten
	t.Run("first", use)
	before := descriptors(t)
	t.Run("again", use)
	patience.Until(t, "no more to be open than before", func() bool {
		for kind, n := range descriptors(t) {
			if n > before[kind] {
				return false
			}
		}
		return true
	})
}

// TestOutputAfterTheDeadlineIsBounded checks that a background process that always writes does not
// hold up the end of a command for ever: after the deadline, the bytes of one full pipe are read.
func TestOutputAfterTheDeadlineIsBounded(t *testing.T) {
	t.Parallel()
	const pipe, each, more = 1 << 20, 8, 3
	fd, err := unix.Eventfd(pipe/each+more, unix.EFD_SEMAPHORE|unix.EFD_NONBLOCK|unix.EFD_CLOEXEC) // always has 8 bytes to read
	must.Do(t, err)
	f := os.NewFile(uintptr(fd), "eventfd")
	defer f.Close()
	must.Do(t, f.SetReadDeadline(time.Now().Add(-time.Second)))
	o, reader := newOutput(newBudget())
	o.unsubscribe(reader)
	if !o.copyFrom(f, stdout) {
		t.Error("nobody is said to hold the output open")
	}
	left := 0
	for b := [each]byte{}; ; left++ {
		if _, err := unix.Read(fd, b[:]); err != nil {
			must.Is(t, err, unix.EAGAIN)
			break
		}
	}
	if left != more {
		t.Errorf("%d bytes are left, want %d", left*each, more*each)
	}
}

// TestPrintable tries every byte in metadata.
func TestPrintable(t *testing.T) {
	t.Parallel()
	for b := range 256 {
		want := b >= ' ' && b <= '~'
		if got := printable("a" + string([]byte{byte(b)}) + "a"); got != want {
			t.Errorf("byte %#x: got %v, want %v", b, got, want)
		}
	}
}

// TestInputWithoutAProcess checks that input before the message that selects a process is refused, and
// that the service goes on.
func TestInputWithoutAProcess(t *testing.T) {
	t.Parallel()
	d := serve(t)
	for want, msg := range map[connect.Code]*process.StreamInputRequest{
		connect.CodeFailedPrecondition: {Event: &process.StreamInputRequest_Data{Data: &process.StreamInputRequest_DataEvent{
			Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte("x")}},
		}}},
		connect.CodeNotFound:      {Event: &process.StreamInputRequest_Start{Start: &process.StreamInputRequest_StartEvent{Process: byTag("none")}}},
		connect.CodeUnimplemented: {},
	} {
		in := d.processes().StreamInput(t.Context())
		_ = in.Send(msg) // the answer has the error
		if _, err := in.CloseAndReceive(); connect.CodeOf(err) != want {
			t.Errorf("%v: got error %v, want %v", msg, err, want)
		}
	}
}

// TestWatchOfABadPath checks that no watch is made of a path that cannot be resolved.
func TestWatchOfABadPath(t *testing.T) {
	t.Parallel()
	s, err := serve(t).files().WatchDir(t.Context(), connect.NewRequest(&filesystem.WatchDirRequest{Path: "~another"}))
	must.Do(t, err)
	defer s.Close()
	if s.Receive() || connect.CodeOf(s.Err()) != connect.CodeInvalidArgument {
		t.Errorf("got %v and error %v, want %v", s.Msg(), s.Err(), connect.CodeInvalidArgument)
	}
}
