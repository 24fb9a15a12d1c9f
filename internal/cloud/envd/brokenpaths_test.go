//go:build linux

package envd

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestBrokenPaths sends paths that cannot be resolved, and paths that the kernel refuses, to every call that
// takes a path.
func TestBrokenPaths(t *testing.T) {
	t.Parallel()
	d := serve(t)
	put(t, d.home+"/file", "text")
	must.Do(t, os.Symlink("loop", d.home+"/loop"))
	ctx, files := t.Context(), d.files()
	calls := map[string]func(path string) error{
		"Stat": func(path string) error {
			_, err := files.Stat(ctx, connect.NewRequest(&filesystem.StatRequest{Path: path}))
			return err
		},
		"MakeDir": func(path string) error {
			_, err := files.MakeDir(ctx, connect.NewRequest(&filesystem.MakeDirRequest{Path: path}))
			return err
		},
		"Move from": func(path string) error {
			_, err := files.Move(ctx, connect.NewRequest(&filesystem.MoveRequest{Source: path, Destination: "there"}))
			return err
		},
		"Move to": func(path string) error {
			_, err := files.Move(ctx, connect.NewRequest(&filesystem.MoveRequest{Source: "file", Destination: path}))
			return err
		},
		"Remove": func(path string) error {
			_, err := files.Remove(ctx, connect.NewRequest(&filesystem.RemoveRequest{Path: path}))
			return err
		},
		"ListDir": func(path string) error {
			_, err := files.ListDir(ctx, connect.NewRequest(&filesystem.ListDirRequest{Path: path}))
			return err
		},
		"CreateWatcher": func(path string) error {
			_, err := files.CreateWatcher(ctx, connect.NewRequest(&filesystem.CreateWatcherRequest{Path: path}))
			return err
		},
		"Start": func(path string) error {
			s, err := d.processes().Start(ctx, connect.NewRequest(&process.StartRequest{Process: &process.ProcessConfig{Cmd: "true", Cwd: &path}}))
			if err != nil {
				return err
			}
			defer s.Close()
			s.Receive()
			return s.Err()
		},
	}
	long := strings.Repeat("n", 256)
	for name, call := range calls {
		if err := call("~stranger"); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s of a path that cannot be resolved: got error %v, want %v", name, err, connect.CodeInvalidArgument)
		}
		for _, path := range []string{long, long + "/below"} {
			if err := call(path); connect.CodeOf(err) != connect.CodeInternal {
				t.Errorf("%s of a name that is too long: got error %v, want %v", name, err, connect.CodeInternal)
			}
		}
	}
	for name, want := range map[string]connect.Code{"Move to": connect.CodeInternal, "MakeDir": connect.CodeInternal, "ListDir": connect.CodeFailedPrecondition, "CreateWatcher": connect.CodeFailedPrecondition} {
		if err := calls[name]("loop/below"); connect.CodeOf(err) != want {
			t.Errorf("%s below a link to itself: got error %v, want %v", name, err, want)
		}
	}
	if got := d.names(t); got != "file loop" || d.server.watchers.count != 0 {
		t.Errorf("left %s and %d watchers, want the first files alone", got, d.server.watchers.count)
	}
}

// TestBrokenPathsOverHTTP does the same for the routes of files.
func TestBrokenPathsOverHTTP(t *testing.T) {
	t.Parallel()
	d := serve(t)
	put(t, d.home+"/file", "text")
	must.Do(t, os.Symlink("loop", d.home+"/loop"))
	long := strings.Repeat("n", 256)
	for _, tt := range []struct {
		method, target, body, kind, want string
		status                           int
	}{
		{"GET", "/files?path=" + long, "", "", "error checking file", 500},
		{"GET", "/files?path=loop", "", "", "error checking file", 500},
		{"POST", "/files?path=~stranger", "x", octets, "cannot expand", 400},
		{"POST", "/files?path=" + long, "x", octets, "file name too long", 500},
		{"POST", "/files?path=" + long + "/below", "x", octets, "error ensuring directories", 500},
		{"POST", "/files?path=loop", "x", octets, "error opening file", 500},
		{"POST", "/files?path=file/below", "x", octets, "error ensuring directories", 500},
		{"POST", "/files?path=.", "x", octets, "path is a directory", 400},
		{"POST", "/files", "x", octets, "path query parameter is required", 400},
		{"POST", "/files?path=new", "x", "text/plain", "unsupported content type: text/plain", 400},
		{"POST", "/files?path=new", "x", "", "unsupported content type: , expected", 400},
		{"POST", "/files?path=new", file("file", "x"), "multipart/form-data; boundary=b; boundary=c", "unsupported content type", 400},
		{"POST", "/files/compose", `{"source_paths":["` + long + `"],"destination":"c"}`, "", "file name too long", 500},
		{"POST", "/files/compose", `{"source_paths":["loop"],"destination":"c"}`, "", "too many levels", 500},
		{"POST", "/files/compose", `{"source_paths":["~stranger"],"destination":"c"}`, "", "cannot expand", 400},
		{"POST", "/files/compose", `{"source_paths":["file"],"destination":"~stranger"}`, "", "cannot expand", 400},
		{"POST", "/files/compose", `{"source_paths":["file"],"destination":"` + long + `"}`, "", "file name too long", 500},
		{"POST", "/files/compose", `{"source_paths":["file"],"destination":"file/below"}`, "", "error ensuring directories", 500},
		{"POST", "/files/compose", `{"source_paths":["file"],"destination":"` + strings.Repeat("d", 256) + `/c"}`, "", "file name too long", 500},
		{"POST", "/files/compose", strings.Repeat(" ", 1<<20) + `{"source_paths":["file"],"destination":"c"}`, "", "request body too large", 400},
	} {
		res, body := d.do(t, tt.method, tt.target, tt.body, "Content-Type", tt.kind)
		if res.StatusCode != tt.status || !strings.Contains(body, tt.want) {
			t.Errorf("%s %.40s %.60s: got %d %s, want %d with %q", tt.method, tt.target, strings.TrimSpace(tt.body), res.StatusCode, body, tt.status, tt.want)
		}
	}
	if got := d.names(t); got != "file loop" || content(t, d.home+"/file") != "text" {
		t.Errorf("left %s, want the first files alone", got)
	}
	user := d.server.users.fallback
	if err := concatenate(d.home+"/c", []string{d.home + "/file", d.home + "/none"}, user); !errors.Is(err, os.ErrNotExist) || d.names(t) != "file loop" {
		t.Errorf("with a source that is gone: got error %v, and left %s", err, d.names(t))
	}
}

// TestOpenRegular checks that only files that end are opened by the calls that read whole
// files, and that nothing waits for a pipe's other end.
func TestOpenRegular(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir+"/file", "text")
	must.Do(t, unix.Mkfifo(dir+"/pipe", 0o600))
	for path, want := range map[string]string{dir + "/file": "", "/dev/null": "", dir + "/pipe": "not a regular file", dir: "not a regular file", "/dev/zero": "not a regular file", dir + "/none": "no such file"} {
		f, err := openRegular(path)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || (f == nil) != (err != nil) {
			t.Errorf("%s: got %v and error %v, want %q", path, f, err, want)
		}
		if f != nil {
			must.Do(t, f.Close())
		}
	}
}

// TestCodesOfErrors checks which code a client gets for an error of the system.
func TestCodesOfErrors(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]connect.Code{
		errClosed: connect.CodeUnavailable, errTooManyProcesses: connect.CodeResourceExhausted, errNoShell: connect.CodeFailedPrecondition,
		unix.EAGAIN: connect.CodeResourceExhausted, unix.ENOMEM: connect.CodeResourceExhausted, unix.EMFILE: connect.CodeResourceExhausted, unix.ENFILE: connect.CodeResourceExhausted,
		unix.EACCES: connect.CodePermissionDenied, unix.EPERM: connect.CodePermissionDenied, unix.EINVAL: connect.CodeInvalidArgument, unix.E2BIG: connect.CodeInvalidArgument,
		unix.EIO: connect.CodeInternal,
	} {
		if got := startFailure(&os.PathError{Op: "start", Path: "a", Err: err}); connect.CodeOf(got) != want {
			t.Errorf("%v: got %v, want %v", err, got, want)
		}
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"-l", "-c", "a 'b c'"}, "a|b c"}, {[]string{"-c", "a b"}, "a|b"}, {[]string{"-l", "a"}, ""}, {[]string{"-c"}, ""}, {nil, ""},
		{[]string{"-l"}, ""}, {[]string{"-x", "a"}, ""}, {[]string{"-x", "-c", "a"}, ""}, {[]string{"-c", "a", "b"}, ""}, {[]string{"-c", "a; b"}, ""},
	} {
		if got := strings.Join(wordsOf(tt.args), "|"); got != tt.want {
			t.Errorf("%q: got the words %q, want %q", tt.args, got, tt.want)
		}
	}
}

// TestBrokenInput checks the errors of a process whose terminal, or input, is broken.
func TestBrokenInput(t *testing.T) {
	t.Parallel()
	d := serve(t)
	ctx := t.Context()
	const script = "trap '' HUP; echo ready; sleep 60" // it outlives its terminal
	terminal := shell(script)
	terminal.Pty = &process.PTY{Size: &process.PTY_Size{Cols: 80, Rows: 24}}
	plain := shell(script)
	plain.Stdin = nil
	for name, req := range map[string]*process.StartRequest{"a terminal": terminal, "a pipe": plain} {
		s, pid := d.begin(t, connect.NewRequest(req))
		if !s.Receive() {
			t.Fatalf("%s: got error %v, want that the script runs", name, s.Err())
		}
		r, err := d.server.processes.find(byPid(pid))
		must.Do(t, err)
		input := &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte("x")}}
		_, err = d.processes().CloseStdin(ctx, connect.NewRequest(&process.CloseStdinRequest{Process: byPid(pid)}))
		if r.terminal != nil {
			input = &process.ProcessInput{Input: &process.ProcessInput_Pty{Pty: []byte("x")}}
			if connect.CodeOf(err) != connect.CodeUnknown {
				t.Errorf("%s: closing it: got error %v, want %v", name, err, connect.CodeUnknown)
			}
			must.Do(t, r.terminal.Close())
		} else if err != nil {
			t.Errorf("%s: closing it: got error %v", name, err)
		}
		if _, err := d.processes().SendInput(ctx, connect.NewRequest(&process.SendInputRequest{Process: byPid(pid), Input: input})); connect.CodeOf(err) != connect.CodeInternal || !strings.Contains(err.Error(), errStdinClosed.Error()) {
			t.Errorf("%s: input: got error %v, want that it is closed", name, err)
		}
		in := d.processes().StreamInput(ctx)
		must.Do(t, in.Send(&process.StreamInputRequest{Event: &process.StreamInputRequest_Start{Start: &process.StreamInputRequest_StartEvent{Process: byPid(pid)}}}))
		_ = in.Send(&process.StreamInputRequest{Event: &process.StreamInputRequest_Data{Data: &process.StreamInputRequest_DataEvent{Input: input}}}) // the answer has the error
		if _, err := in.CloseAndReceive(); connect.CodeOf(err) != connect.CodeInternal {
			t.Errorf("%s: a stream of input: got error %v, want %v", name, err, connect.CodeInternal)
		}
		size := &process.PTY{Size: &process.PTY_Size{Cols: 1, Rows: 1}}
		if _, err := d.processes().Update(ctx, connect.NewRequest(&process.UpdateRequest{Process: byPid(pid), Pty: size})); connect.CodeOf(err) != connect.CodeInternal {
			t.Errorf("%s: its size: got error %v, want %v", name, err, connect.CodeInternal)
		}
		if r.terminal == nil {
			r.stdin.mu.Lock()
			r.stdin.closed = false // so that it is closed again, which fails
			r.stdin.mu.Unlock()
			if _, err := d.processes().CloseStdin(ctx, connect.NewRequest(&process.CloseStdinRequest{Process: byPid(pid)})); connect.CodeOf(err) != connect.CodeUnknown {
				t.Errorf("%s: closing it in vain: got error %v, want %v", name, err, connect.CodeUnknown)
			}
		}
	}
}

// TestCallsWithoutAProcess checks that every call about a process that is not there, or of no selector, fails.
func TestCallsWithoutAProcess(t *testing.T) {
	t.Parallel()
	d := serve(t)
	ctx, client := t.Context(), d.processes()
	for name, call := range map[string]func(s *process.ProcessSelector) error{
		"Update": func(s *process.ProcessSelector) error {
			_, err := client.Update(ctx, connect.NewRequest(&process.UpdateRequest{Process: s}))
			return err
		},
		"SendInput": func(s *process.ProcessSelector) error {
			_, err := client.SendInput(ctx, connect.NewRequest(&process.SendInputRequest{Process: s}))
			return err
		},
		"SendSignal": func(s *process.ProcessSelector) error {
			_, err := client.SendSignal(ctx, connect.NewRequest(&process.SendSignalRequest{Process: s, Signal: process.Signal_SIGNAL_SIGTERM}))
			return err
		},
		"CloseStdin": func(s *process.ProcessSelector) error {
			_, err := client.CloseStdin(ctx, connect.NewRequest(&process.CloseStdinRequest{Process: s}))
			return err
		},
		"Connect": func(s *process.ProcessSelector) error {
			stream, err := client.Connect(ctx, connect.NewRequest(&process.ConnectRequest{Process: s}))
			must.Do(t, err)
			defer stream.Close()
			stream.Receive()
			return stream.Err()
		},
		"Connect again": func(s *process.ProcessSelector) error {
			stream := d.again(t, s, "0")
			stream.Receive()
			return stream.Err()
		},
	} {
		for want, s := range map[connect.Code]*process.ProcessSelector{connect.CodeNotFound: byTag("none"), connect.CodeUnimplemented: {}} {
			if err := call(s); connect.CodeOf(err) != want {
				t.Errorf("%s of %v: got error %v, want %v", name, s, err, want)
			}
		}
	}
	if res, body := d.do(t, "POST", "/process.Process/List", "{}", "Content-Type", okJSON); res.StatusCode != http.StatusOK || body != "{}" {
		t.Errorf("the list: got %d %s, want an empty one", res.StatusCode, body)
	}
}
