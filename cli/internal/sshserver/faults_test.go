package sshserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	rpc "connectrpc.com/connect"
	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
	"github.com/e2bctl/e2bctl/internal/gen/filesystem/filesystemconnect"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/gen/process/processconnect"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
)

// daemon is a sandbox whose answers a test chooses.
type daemon struct {
	filesystemconnect.UnimplementedFilesystemHandler
	processconnect.UnimplementedProcessHandler
	stat   error
	kind   filesystem.FileType
	target string  // of a link; its own description fails with stat
	broken *string // the target of each link, all broken; nil: no link is
	output string  // of each program
	ran    []string
	users  []string // of all requests
}

func (d *daemon) ListDir(context.Context, *rpc.Request[filesystem.ListDirRequest]) (*rpc.Response[filesystem.ListDirResponse], error) {
	if d.stat != nil {
		return nil, d.stat
	}
	return rpc.NewResponse(&filesystem.ListDirResponse{Entries: []*filesystem.EntryInfo{{Name: "a", Path: "/a", Type: filesystem.FileType_FILE_TYPE_FILE}, {Name: "b", Path: "/b", Type: filesystem.FileType_FILE_TYPE_FILE}}}), nil
}

func (d *daemon) Stat(_ context.Context, r *rpc.Request[filesystem.StatRequest]) (*rpc.Response[filesystem.StatResponse], error) {
	if d.broken != nil {
		return rpc.NewResponse(&filesystem.StatResponse{Entry: &filesystem.EntryInfo{Name: "link", Path: "/link", Permissions: "Lrwxrwxrwx", SymlinkTarget: d.broken}}), nil
	}
	if d.target != "" && r.Msg.GetPath() != d.target {
		return rpc.NewResponse(&filesystem.StatResponse{Entry: &filesystem.EntryInfo{Name: "link", Path: "/link", Permissions: "Lrwxrwxrwx", SymlinkTarget: &d.target}}), nil
	}
	if d.stat != nil {
		return nil, d.stat
	}
	permissions := "-rw-r--r--"
	if d.kind == filesystem.FileType_FILE_TYPE_DIRECTORY {
		permissions = "drwxr-xr-x"
	}
	return rpc.NewResponse(&filesystem.StatResponse{Entry: &filesystem.EntryInfo{Name: "f", Path: "/f", Type: d.kind, Size: 3, Permissions: permissions}}), nil
}

func (d *daemon) Start(_ context.Context, r *rpc.Request[process.StartRequest], to *rpc.ServerStream[process.StartResponse]) error {
	program := r.Msg.GetProcess()
	d.ran = append(d.ran, program.GetCmd()+" "+strings.Join(program.GetArgs(), " "))
	if d.output == "" {
		return rpc.NewError(rpc.CodePermissionDenied, errors.New("refused"))
	}
	for _, event := range []*process.ProcessEvent{
		{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: 7}}},
		{Event: &process.ProcessEvent_Data{Data: &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stdout{Stdout: []byte(d.output)}}}},
		{Event: &process.ProcessEvent_End{End: &process.ProcessEvent_EndEvent{Exited: true, Status: "exit status 0"}}},
	} {
		if err := to.Send(&process.StartResponse{Event: event}); err != nil {
			return err
		}
	}
	return nil
}

// server returns a server of the daemon's sandbox.
func (d *daemon) server(t *testing.T) *server {
	t.Helper()
	requests, mux := http.NewServeMux(), http.NewServeMux()
	requests.Handle(filesystemconnect.NewFilesystemHandler(d))
	requests.Handle(processconnect.NewProcessHandler(d))
	requests.HandleFunc("/files", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `[{"name":"f","path":"/f","type":"file"}]`)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		user, _, ok := r.BasicAuth()
		if !ok {
			user = r.URL.Query().Get("username")
		}
		d.users = append(d.users, user)
		requests.ServeHTTP(w, r)
	})
	return &server{Config: Config{Sandbox: cmdtest.Sandbox(t, mux), Message: func(err error) string { return "message of " + err.Error() }}, user: "u"}
}

// channel is a channel whose reads end with an error.
type channel struct {
	ssh.Channel
	read func() error
}

func (c channel) Read([]byte) (int, error)    { return 0, c.read() }
func (c channel) Write(p []byte) (int, error) { return len(p), nil }
func (c channel) Close() error                { return nil }

// TestEndsOfSftp checks which ends of an sftp session are errors.
func TestEndsOfSftp(t *testing.T) {
	t.Parallel()
	d := &daemon{kind: filesystem.FileType_FILE_TYPE_DIRECTORY}
	s := d.server(t)
	broken := errors.New("broken")
	refused := rpc.NewError(rpc.CodePermissionDenied, errors.New("refused"))
	for _, test := range []struct {
		what       string
		stat, read error
		ended      bool // the context
		want       error
	}{
		{"the client leaves", nil, io.EOF, false, nil}, {"the channel breaks", nil, broken, false, broken}, {"the channel breaks at the end", nil, broken, true, nil},
		{"the sandbox refuses", refused, io.EOF, false, fs.ErrPermission},
	} {
		d.stat = test.stat
		ctx, cancel := context.WithCancel(t.Context())
		read := func() error {
			if test.ended {
				cancel()
			}
			return test.read
		}
		_, err := (&session{server: s, channel: channel{read: read}}).sftp(ctx)
		if !errors.Is(err, test.want) || test.want == nil && err != nil {
			t.Errorf("%s: got error %v, want %v", test.what, err, test.want)
		}
		cancel()
	}
}

// TestRefusedFilesAreNotOpen checks that a file that cannot be opened is an error of the right status, and does not count as open.
func TestRefusedFilesAreNotOpen(t *testing.T) {
	t.Parallel()
	d := &daemon{}
	f := &files{server: d.server(t), life: t.Context(), writing: map[string]*writer{}}
	missing, refused := rpc.NewError(rpc.CodeNotFound, errors.New("none")), rpc.NewError(rpc.CodePermissionDenied, errors.New("refused"))
	const file, directory = filesystem.FileType_FILE_TYPE_FILE, filesystem.FileType_FILE_TYPE_DIRECTORY
	const read, write, create, exclusive = 1, 2, 2 | 8, 2 | 8 | 32 // of the protocol
	for _, test := range []struct {
		what  string
		stat  error
		kind  filesystem.FileType
		open  int
		flags uint32
		want  string
	}{
		{"a file", nil, file, 0, read, ""}, {"missing", missing, file, 0, read, sftp.ErrSSHFxNoSuchFile.Error()}, {"refused", refused, file, 0, read, sftp.ErrSSHFxPermissionDenied.Error()},
		{"a directory", nil, directory, 0, read, "it is a directory"}, {"the last", nil, file, maxOpen - 1, read, ""}, {"too many", nil, file, maxOpen, read, "at most 100 files"},
		{"a file to write", nil, file, 0, write, ""}, {"missing to write", missing, file, 0, write, sftp.ErrSSHFxNoSuchFile.Error()}, {"refused to write", refused, file, 0, create, sftp.ErrSSHFxPermissionDenied.Error()},
		{"a directory to write", nil, directory, 0, create, "it is a directory"}, {"too many to write", nil, file, maxOpen, create, "at most 100 files"}, {"another", nil, file, 0, exclusive, os.ErrExist.Error()},
	} {
		d.stat, d.kind, f.open = test.stat, test.kind, test.open
		request := sftp.NewRequest("Open", "/f")
		request.Flags = test.flags
		var err error
		if test.flags == read {
			_, err = f.Fileread(request)
		} else {
			_, err = f.Filewrite(request)
		}
		opened := 0
		if test.want == "" {
			opened = 1
		}
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) || f.open != test.open+opened {
			t.Errorf("%s: got error %v and %d open, want %q and %d", test.what, err, f.open, test.want, test.open+opened)
		}
	}
}

// TestRequestsThatFail checks requests that no client of the other tests sends, and answers that no sandbox should give.
func TestRequestsThatFail(t *testing.T) {
	t.Parallel()
	d := &daemon{output: "no numbers"}
	f := &files{server: d.server(t), life: t.Context(), writing: map[string]*writer{}}
	if err := f.Filecmd(sftp.NewRequest("Chat", "/f")); !errors.Is(err, sftp.ErrSSHFxOpUnsupported) || len(d.ran) > 0 {
		t.Errorf("an unknown request: got error %v, and ran %q", err, d.ran)
	}
	must.Do(t, f.change(t.Context(), "/f", sftp.FileAttrFlags{}, &sftp.FileStat{}))
	if len(d.ran) > 0 {
		t.Errorf("a change of nothing has run %q", d.ran)
	}
	if s, err := f.StatVFS(sftp.NewRequest("StatVFS", "/")); err == nil || s != nil || !strings.Contains(err.Error(), `printed "no numbers"`) {
		t.Errorf("a program that prints no numbers: got %v and error %v", s, err)
	}
	d.output = "1 2 3 4 5 6 7 8"
	if s, err := f.StatVFS(sftp.NewRequest("StatVFS", "/")); err != nil || *s != (sftp.StatVFS{Bsize: 1, Frsize: 2, Blocks: 3, Bfree: 4, Bavail: 5, Files: 6, Ffree: 7, Favail: 7, Namemax: 8}) {
		t.Errorf("got %+v and error %v", s, err)
	}
	d.output = ""
	if _, err := f.StatVFS(sftp.NewRequest("StatVFS", "/")); err == nil || !strings.Contains(err.Error(), "message of sandbox: ") {
		t.Errorf("a refused program: got error %v", err)
	}
	broken := errors.New("broken")
	f.writing["/f"] = &writer{err: broken}
	size := sftp.NewRequest("Setstat", "/f")
	size.Flags, size.Attrs = 1, make([]byte, 8) // a length of 0
	d.ran = nil
	if err := f.Filecmd(size); err == nil || !strings.Contains(err.Error(), "broken") || len(d.ran) > 0 {
		t.Errorf("the length of a file whose writing failed: got error %v, and ran %q", err, d.ran)
	}
	early := &writer{early: map[int64][]byte{3: []byte("x")}, open: func(int64, bool) *upload {
		return newUpload(t.Context(), func(context.Context, io.Reader) error { return broken })
	}}
	if err := early.flush(); !errors.Is(err, broken) {
		t.Errorf("bytes that came early cannot be written: got error %v", err)
	}
}

// TestDescriptions checks the description of a file, of a link and of the target of a link, and that a failure is not an empty one.
func TestDescriptions(t *testing.T) {
	t.Parallel()
	refused, missing := rpc.NewError(rpc.CodePermissionDenied, errors.New("refused")), rpc.NewError(rpc.CodeNotFound, errors.New("none"))
	d := &daemon{}
	f := &files{server: d.server(t), life: t.Context()}
	list, stat, lstat := func() (sftp.ListerAt, error) { return f.Filelist(sftp.NewRequest("List", "/link")) }, func() (sftp.ListerAt, error) { return f.Filelist(sftp.NewRequest("Stat", "/link")) },
		func() (sftp.ListerAt, error) { return f.Lstat(sftp.NewRequest("Lstat", "/link")) }
	for _, test := range []struct {
		what   string
		call   func() (sftp.ListerAt, error)
		target string
		stat   error
		name   string
		link   bool
		err    error
	}{
		{"a file", stat, "", nil, "f", false, nil}, {"a refused file", stat, "", refused, "", false, sftp.ErrSSHFxPermissionDenied}, {"a missing file", lstat, "", missing, "", false, sftp.ErrSSHFxNoSuchFile},
		{"a link", lstat, "/f", nil, "link", true, nil}, {"a link to a refused file", lstat, "/f", refused, "link", true, nil}, {"the target of a link", stat, "/f", nil, "link", false, nil},
		{"a refused target", stat, "/f", refused, "", false, sftp.ErrSSHFxPermissionDenied}, {"a missing target", stat, "/f", missing, "", false, sftp.ErrSSHFxNoSuchFile},
		{"a link to itself", stat, "/link", nil, "f", false, nil}, {"a list that is refused", list, "", refused, "", false, sftp.ErrSSHFxPermissionDenied},
	} {
		d.target, d.stat = test.target, test.stat
		found, err := test.call()
		if test.err != nil {
			if found != nil || err == nil || !errors.Is(err, test.err) {
				t.Errorf("%s: got %v and error %v, want %v", test.what, found, err, test.err)
			}
			continue
		}
		infos := make([]os.FileInfo, 2)
		if n, _ := found.ListAt(infos, 0); err != nil || n != 1 || infos[0].Name() != test.name || (infos[0].Mode()&fs.ModeSymlink != 0) != test.link {
			t.Errorf("%s: got %d and error %v, want %s, a link: %v", test.what, n, err, test.name, test.link)
		}
	}
}

// TestBrokenLinks checks that a link that leads to nothing is a missing file, unless it is described itself.
func TestBrokenLinks(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"", "/link", "/./link/"} {
		d := &daemon{broken: &target}
		f := &files{server: d.server(t), life: t.Context()}
		_, err := f.stat(t.Context(), "/link", true)
		must.Is(t, err, fs.ErrNotExist)
		info, err := f.stat(t.Context(), "/link", false)
		if must.Do(t, err); info.Mode&fs.ModeSymlink == 0 || len(d.users) != 2 {
			t.Errorf("%q: got %+v after %d requests, want the link after one", target, info, len(d.users)-1)
		}
	}
}

// TestRelaysThatFail checks the reason of a relay that has not connected, and the end of one that has.
func TestRelaysThatFail(t *testing.T) {
	t.Parallel()
	s := &server{Config: Config{Message: func(err error) string { return err.Error() }}}
	exit := &sandbox.ExitError{Result: &sandbox.CommandResult{ExitCode: 1}}
	for want, err := range map[string]error{
		`"/s" in the sandbox: the last line`: exit, `"/s" in the sandbox: its server accepted no connection for 1m0s`: fmt.Errorf("run: %w", context.Canceled), "EOF": io.EOF,
	} {
		if got := s.relayError("/s", &socketRelay{errs: []byte("a line\nthe last line\n")}, err); got != want {
			t.Errorf("%v: got %q, want %q", err, got, want)
		}
	}
	mine := errors.New("mine")
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(mine)
	r := newSocketRelay(ended)
	must.Do(t, r.output(make([]byte, maxProfile)))
	whole := newSocketRelay(ended)
	if must.Do(t, whole.output(append(make([]byte, maxProfile+1), whole.marker...))); !whole.opened {
		t.Error("a marker after a long profile was not found")
	}
	if err := r.output([]byte("x")); err == nil || !strings.Contains(err.Error(), "profile") {
		t.Errorf("a profile of more than the most: got error %v", err)
	}
	r = newSocketRelay(ended)
	must.Do(t, r.output([]byte("profile"+r.marker[:5])))
	must.Do(t, r.output([]byte(r.marker[5:])))
	if !r.opened {
		t.Error("a marker in two pieces was not found")
	}
	must.Is(t, r.output([]byte("x")), mine)
	must.Is(t, r.errors([]byte(r.marker+" 0\n")), mine)
	r.channel = failingChannel{err: mine}
	must.Is(t, r.output([]byte("x")), mine)
	must.Is(t, net.Conn(streams{}).SetDeadline(time.Time{}), errors.ErrUnsupported)
}

// TestSessionsAreUnlocked checks that the program of a session, and the last window before it, are noted, and that other requests can be
// made afterwards.
func TestSessionsAreUnlocked(t *testing.T) {
	t.Parallel()
	c := &session{pty: &terminalRequest{}}
	if !c.changeWindow(t.Context(), ssh.Marshal(windowRequest{Cols: 7, Rows: 8})) || !c.mu.TryLock() {
		t.Fatal("a window before the program was refused, or keeps the lock")
	}
	c.mu.Unlock()
	var sizes []int
	window := c.runs(5, func(_ context.Context, cols, rows int) error { sizes = append(sizes, cols, rows); return nil })
	if window == nil || window.Cols != 7 || window.Rows != 8 || c.pid != 5 {
		t.Fatalf("got the window %+v and the process %d", window, c.pid)
	}
	if !c.mu.TryLock() {
		t.Fatal("the program of a session keeps the lock")
	}
	c.mu.Unlock()
	if !c.changeWindow(t.Context(), ssh.Marshal(windowRequest{Cols: 1 << 16, Rows: 9})) || len(sizes) != 2 || sizes[0] != 1<<16-1 || sizes[1] != 9 {
		t.Errorf("got the sizes %v, want those that a terminal can have", sizes)
	}
	if c.changeWindow(t.Context(), []byte("damaged")) || len(sizes) != 2 {
		t.Errorf("a damaged request has set the sizes %v", sizes[2:])
	}
	if c.pty = nil; c.changeWindow(t.Context(), ssh.Marshal(windowRequest{})) {
		t.Error("the window of no terminal was changed")
	}
}

// TestSignalsOfNoProcess checks that a signal without a process, or without a name, is sent to nothing.
func TestSignalsOfNoProcess(t *testing.T) {
	t.Parallel()
	d := &daemon{output: "text"}
	c := &session{server: d.server(t)}
	for _, pid := range []int{0, 7} {
		c.pid = pid
		for name, known := range map[string]bool{"TERM": true, "": false, "NOPE": false, "9": false, "KILL; true": false} {
			d.ran = nil
			if !c.mu.TryLock() {
				t.Fatal("a signal keeps the lock")
			}
			c.mu.Unlock()
			if got := c.signal(t.Context(), name); got != (known && pid > 0) || got != (len(d.ran) == 1) {
				t.Errorf("%q to the process %d: got %v, and ran %q", name, pid, got, d.ran)
			} else if want := "kill -s TERM -- -7 2>/dev/null || kill -s TERM -- 7"; got && !strings.Contains(d.ran[0], want) {
				t.Errorf("%q to the process %d: ran %q, want %s", name, pid, d.ran, want)
			}
		}
	}
	ended := false
	r, _ := io.Pipe()
	must.Do(t, (&ranged{r, func() { ended = true }}).Close())
	if _, err := r.Read(make([]byte, 1)); !ended || !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a closed read: its command has ended: %v, and a read has error %v", ended, err)
	}
}

// TestUsersOfFiles checks that each request about files is one of the session's user.
func TestUsersOfFiles(t *testing.T) {
	t.Parallel()
	d := &daemon{output: "text", target: "/f"}
	f := &files{server: d.server(t), life: t.Context(), writing: map[string]*writer{}}
	read := func(offset int64) func() {
		return func() {
			r, err := f.read("/f", offset)
			must.Do(t, err)
			text, err := io.ReadAll(r)
			must.Do(t, errors.Join(err, r.Close()))
			if tail := strings.Contains(strings.Join(d.ran, ""), "tail"); len(text) == 0 || (string(text) == "text") != (offset > 0) || tail != (offset > 0) {
				t.Errorf("from %d on: got %q, and ran %q", offset, text, d.ran)
			}
		}
	}
	for name, tt := range map[string]struct {
		do       func()
		requests int
	}{
		"a link":        {func() { _, _ = f.stat(t.Context(), "/link", true) }, 2},
		"a signal":      {func() { (&session{server: f.server, pid: 7}).signal(t.Context(), "TERM") }, 1},
		"a list":        {func() { _, _ = f.Filelist(sftp.NewRequest("List", "/link")) }, 1},
		"a file":        {read(0), 1},
		"a part":        {read(9), 1},
		"a new file":    {func() { must.Do(t, f.write("/f", 0, true).end(nil)) }, 1},
		"a file's part": {func() { _ = f.write("/f", 9, false).end(nil) }, 1},
		"a program":     {func() { _, _ = f.run(t.Context(), "true") }, 1},
		"a change":      {func() { must.Do(t, f.change(t.Context(), "/f", sftp.FileAttrFlags{UidGid: true}, &sftp.FileStat{})) }, 1},
		"sftp": {func() {
			_, _ = (&session{server: f.server, channel: channel{read: func() error { return io.EOF }}}).sftp(t.Context())
		}, 1},
	} {
		d.users, d.ran = nil, nil
		tt.do()
		if len(d.users) < tt.requests || slices.ContainsFunc(d.users, func(user string) bool { return user != "u" }) {
			t.Errorf("%s: got requests of %q, want at least %d of the session's user", name, d.users, tt.requests)
		}
	}
}

// TestAppends checks from which byte on a client may write to a file that exists.
func TestAppends(t *testing.T) {
	t.Parallel()
	const write, appended, created, truncated, exclusive = 2, 2 | 4, 2 | 4 | 8, 2 | 16, 2 | 32 // of the protocol
	for flags, want := range map[uint32]int64{write: 0, appended: 3, created: 3, truncated: 0, exclusive: 0} {
		f := &files{server: (&daemon{}).server(t), life: t.Context(), writing: map[string]*writer{}}
		request := sftp.NewRequest("Open", "/f")
		request.Flags = flags
		to, err := f.Filewrite(request)
		must.Do(t, err)
		w := to.(*opened)
		if emptied := w.upload != nil; w.first != want || emptied != (flags == truncated) {
			t.Errorf("the flags %d: writes from %d on, and the file is emptied: %v; want from %d on", flags, w.first, emptied, want)
		}
		must.Do(t, w.Close())
	}
}

// TestNewFiles checks what is done to a file that did not exist, for each way to open it.
func TestNewFiles(t *testing.T) {
	t.Parallel()
	const created, appended, exclusive = 2 | 8, 2 | 8 | 4, 2 | 8 | 32 // of the protocol
	for _, test := range []struct {
		flags uint32
		attrs string
		want  string // that ran
	}{{created, "", ""}, {appended, "", ""}, {exclusive, "", ""}, {created, "\x00\x00\x01\xa4", ""}, {created, "\x00\x00\x01\x80", "chmod 0600 -- /f"}, {created, "\x00\x00\x01\xff", "chmod 0755 -- /f"}} {
		d := &daemon{output: "text", stat: rpc.NewError(rpc.CodeNotFound, errors.New("none"))}
		f := &files{server: d.server(t), life: t.Context(), writing: map[string]*writer{}}
		request := sftp.NewRequest("Open", "/f")
		request.Flags, request.Attrs = test.flags, []byte(test.attrs)
		to, err := f.Filewrite(request)
		must.Do(t, err)
		if !f.mu.TryLock() {
			t.Fatalf("%+v: the lock is kept", test)
		}
		f.mu.Unlock()
		w := to.(*opened)
		if w.first != 0 || w.upload == nil || f.writing["/f"] != w.writer {
			t.Errorf("%+v: writes from %d on, and the file is emptied: %v", test, w.first, w.upload != nil)
		}
		must.Do(t, w.upload.CloseWithError(io.ErrUnexpectedEOF))
		_ = w.Close() // no service takes the file
		for _, change := range w.after {
			must.Do(t, change(t.Context()))
		}
		if ran := strings.Join(d.ran, "; "); test.want == "" && ran != "" || !strings.Contains(ran, test.want) {
			t.Errorf("%+v: ran %q", test, ran)
		}
		if f.open != 0 || len(f.writing) != 0 || !f.mu.TryLock() {
			t.Errorf("%+v: %d files are open, or the lock is kept", test, f.open)
		}
	}
}

// failingChannel is a channel that takes nothing.
type failingChannel struct {
	ssh.Channel
	err error
}

func (f failingChannel) Write([]byte) (int, error) { return 0, f.err }

// TestSftpOfASession checks that each kind of request of a client is answered.
func TestSftpOfASession(t *testing.T) {
	t.Parallel()
	d := &daemon{output: "text", kind: filesystem.FileType_FILE_TYPE_FILE}
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		_, err := (&session{server: d.server(t), channel: piped{in: in, out: out}}).sftp(t.Context())
		ended <- err
	}()
	client, err := sftp.NewClientPipe(fromServer, toServer)
	must.Do(t, err)
	if home, err := client.Getwd(); home != "/f" || err != nil {
		t.Errorf("the home is %q, error %v", home, err)
	}
	if info, err := client.Stat("/f"); err != nil || info.Size() != 3 {
		t.Errorf("got %+v and error %v", info, err)
	}
	found, err := client.ReadDir("/f")
	if must.Do(t, err); len(found) != 2 || found[0].Name() != "a" || found[1].Name() != "b" {
		t.Errorf("got the list %v", found)
	}
	must.Do(t, client.Remove("/f"))
	if len(d.ran) != 1 || !strings.Contains(d.ran[0], "rm -- /f") {
		t.Errorf("ran %q", d.ran)
	}
	file, err := client.Open("/f")
	must.Do(t, err)
	text, err := io.ReadAll(file)
	if must.Do(t, errors.Join(err, file.Close())); !strings.Contains(string(text), `"name":"f"`) {
		t.Errorf("read %q", text)
	}
	file, err = client.OpenFile("/f", os.O_WRONLY|os.O_TRUNC)
	must.Do(t, err)
	_, err = file.Write([]byte("new"))
	must.Do(t, errors.Join(err, file.Close()))
	must.Do(t, toServer.Close())
	must.Do(t, <-ended)
	_ = out.Close()
	_ = client.Close() // the server has ended
}

// piped is a channel of two pipes.
type piped struct {
	ssh.Channel
	in  *io.PipeReader
	out *io.PipeWriter
}

func (p piped) Read(b []byte) (int, error)  { return p.in.Read(b) }
func (p piped) Write(b []byte) (int, error) { return p.out.Write(b) }
func (p piped) Close() error                { return errors.Join(p.in.Close(), p.out.Close()) }
