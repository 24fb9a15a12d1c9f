package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

type connectStream = connect.ServerStream[process.ConnectResponse]

// connected makes Connect answer with the events of Start.
func (s *service) connected(events func(ctx context.Context, pid uint32, send func(*process.ProcessEvent) error) error) {
	s.connect = func(ctx context.Context, r *process.ConnectRequest, stream *connectStream) error {
		return events(ctx, r.GetProcess().GetPid(), func(e *process.ProcessEvent) error {
			return stream.Send(&process.ConnectResponse{Event: e})
		})
	}
}

func startEvent(pid uint32) *process.ProcessEvent {
	return &process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: pid}}}
}

func stdoutEvent(data string) *process.ProcessEvent {
	return &process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stdout{Stdout: []byte(data)}}}}
}

func ptyEvent(data []byte) *process.ProcessEvent {
	return &process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Pty{Pty: data}}}}
}

func keepaliveEvent() *process.ProcessEvent {
	return &process.ProcessEvent{Event: &process.ProcessEvent_Keepalive{Keepalive: &process.ProcessEvent_KeepAlive{}}}
}

// killed returns the pids that were signalled.
func (s *service) killed() []uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.signals)
}

// silent starts process 42, which neither prints nor does anything.
func silent(ctx context.Context, _ *process.StartRequest, stream *startStream) error {
	_ = started(stream, 42)
	<-ctx.Done()
	return ctx.Err()
}

func startCommand(t *testing.T, sb *Sandbox, p *CommandParams) *Command {
	t.Helper()
	command, err := sb.Commands.Start(t.Context(), "x", p)
	must.Do(t, err)
	return command
}

func TestStartAndWait(t *testing.T) {
	t.Parallel()
	s := newService(t)
	release := make(chan struct{})
	var got *process.StartRequest
	s.start = func(_ context.Context, r *process.StartRequest, stream *startStream) error {
		got = r
		_ = started(stream, 42)
		_ = stdout(stream, []byte("out\n"))
		_ = stream.Send(&process.StartResponse{Event: keepaliveEvent()})
		<-release
		_ = stderr(stream, []byte("err\n"))
		return ended(stream, 3, "exit status 3")
	}
	sb := s.sandbox()
	ctx, cancel := context.WithCancel(t.Context())
	command, err := sb.Commands.Start(ctx, "x", &CommandParams{Tag: "job"})
	must.Do(t, err)
	cancel() // bounds the starting alone
	if command.PID() != 42 || command.Tag() != "job" {
		t.Errorf("pid %d, tag %q, want 42 and \"job\"", command.PID(), command.Tag())
	}
	if got.GetTag() != "job" || got.Stdin == nil || *got.Stdin {
		t.Errorf("sent %v, want the tag \"job\" and stdin off", got)
	}
	if result, err := command.Wait(ctx); !errors.Is(err, context.Canceled) || result != nil {
		t.Errorf("a Wait that was given up: %+v, %v", result, err)
	}
	close(release)
	var waits sync.WaitGroup
	for range 3 {
		waits.Go(func() {
			result, err := command.Wait(t.Context())
			want := &CommandResult{ExitCode: 3, Status: "exit status 3", Stdout: "out\n", Stderr: "err\n"}
			if failed, ok := errors.AsType[*ExitError](err); !ok || failed.Result != result || gocmp.Diff(want, result) != "" {
				t.Errorf("%+v, %v", result, err)
			}
		})
	}
	waits.Wait()
	if result, err := command.Wait(ctx); result == nil || errors.Is(err, context.Canceled) {
		t.Errorf("what is known is worth more than a context that ended: %v", err)
	}
	for what, err := range map[string]error{"kill": command.Kill(t.Context()), "input": command.SendInput(t.Context(), nil)} {
		if !errors.Is(err, os.ErrProcessDone) || !errors.Is(err, api.ErrNotFound) || errors.Is(err, ErrGone) {
			t.Errorf("%s after the end: %v", what, err)
		}
	}
	if killed := s.killed(); len(killed) != 0 {
		t.Errorf("a process that ended was signalled: %v", killed)
	}
}

func TestStartCancelledEarly(t *testing.T) {
	t.Parallel()
	s := newService(t)
	asked, release := make(chan struct{}), make(chan struct{})
	s.start = func(ctx context.Context, r *process.StartRequest, stream *startStream) error {
		close(asked)
		<-release
		return silent(ctx, r, stream)
	}
	sb := s.sandbox()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if command, err := sb.Commands.Start(ctx, "x", nil); !errors.Is(err, context.Canceled) || command != nil {
		t.Errorf("%v, %v", command, err)
	}
	close(release)
	patience.Until(t, "what was started is killed", func() bool { return slices.Equal(s.killed(), []uint32{42}) })
}

func TestCommandTimeout(t *testing.T) {
	t.Parallel()
	const timeout = 100 * time.Millisecond
	for name, call := range map[string]func(context.Context, *Sandbox, *CommandParams) (*CommandResult, error){
		"Run": func(ctx context.Context, sb *Sandbox, p *CommandParams) (*CommandResult, error) {
			return sb.Commands.Run(ctx, "x", p)
		},
		"Start": func(ctx context.Context, sb *Sandbox, p *CommandParams) (*CommandResult, error) {
			command, err := sb.Commands.Start(ctx, "x", p)
			if err != nil {
				return nil, err
			}
			return command.Wait(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newPipedService(t)
				var told time.Duration
				s.start = func(ctx context.Context, r *process.StartRequest, stream *startStream) error {
					told = left(ctx)
					return silent(ctx, r, stream)
				}
				began := time.Now()
				result, err := call(t.Context(), s.sandbox(), &CommandParams{Timeout: timeout})
				if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "timeout of 100ms") || result == nil {
					t.Errorf("got %+v, %v, want a result and that its timeout passed", result, err)
				}
				if took := time.Since(began); took != timeout {
					t.Errorf("it took %v, want %v", took, timeout)
				}
				if want := timeout + killGrace; told != want {
					t.Errorf("the daemon was told %v, want %v", told, want)
				}
				patience.Until(t, "it is killed", func() bool { return slices.Equal(s.killed(), []uint32{42}) })
			})
		})
	}
}

// left returns the time until a context's deadline, or 0 without a deadline.
func left(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return time.Until(deadline)
}

func TestCommandRefuses(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start = silent
	sb := s.sandbox()
	for want, p := range map[string]*CommandParams{
		"negative":             {Timeout: -1},
		"both Stdin and Input": {Input: true, Stdin: strings.NewReader("")},
	} {
		if _, err := sb.Commands.Start(t.Context(), "x", p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := sb.Commands.Run(t.Context(), "x", &CommandParams{Input: true}); err == nil || !strings.Contains(err.Error(), "Stdin") {
		t.Errorf("Run with input that nobody can send: %v", err)
	}
	command := startCommand(t, sb, nil)
	if err := command.SendInput(t.Context(), []byte("a")); err == nil || !strings.Contains(err.Error(), "CommandParams.Input") {
		t.Errorf("input to a command without: %v", err)
	}
	for _, signal := range []os.Signal{syscall.SIGHUP, os.Interrupt, syscall.Signal(0), nil} {
		if err := command.Signal(t.Context(), signal); err == nil || !strings.Contains(err.Error(), "SIGTERM and SIGKILL") {
			t.Errorf("%v: %v", signal, err)
		}
	}
	if err := sb.Commands.Kill(t.Context(), ByPID(0), nil); err == nil {
		t.Error("pid 0 was killed")
	}
	if err := sb.Commands.Kill(t.Context(), ByPID(42), &CommandKillParams{Signal: os.Interrupt}); err == nil || !strings.Contains(err.Error(), "SIGTERM and SIGKILL") {
		t.Errorf("killed with another signal: %v", err)
	}
	if killed := s.killed(); len(killed) != 0 {
		t.Errorf("requests were made: %v", killed)
	}
	for _, signal := range []os.Signal{syscall.SIGTERM, syscall.SIGKILL, os.Kill} {
		if err := command.Signal(t.Context(), signal); err != nil {
			t.Errorf("%v: %v", signal, err)
		}
	}
}

func TestCommandOfAnOldDaemon(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.daemonVersion = "0.5.1"
	s.start = silent
	sb := s.sandbox()
	if _, err := sb.Commands.Run(t.Context(), "x", &CommandParams{Stdin: strings.NewReader("")}); err == nil || !strings.Contains(err.Error(), "0.5.1 cannot close") {
		t.Errorf("Stdin: %v", err)
	}
	if err := startCommand(t, sb, &CommandParams{Input: true}).CloseStdin(t.Context()); err == nil || !strings.Contains(err.Error(), "0.5.1 cannot close") {
		t.Errorf("CloseStdin: %v", err)
	}
	if s.closed != 0 {
		t.Error("a request was made")
	}
}

func TestSendInput(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start = silent
	var mu sync.Mutex
	var got []byte
	s.input = func(r *process.SendInputRequest) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, r.GetInput().GetStdin()...)
	}
	command := startCommand(t, s.sandbox(), &CommandParams{Input: true})
	var sending sync.WaitGroup
	for _, letter := range []string{"a", "b", "c"} {
		sending.Go(func() {
			if err := command.SendInput(t.Context(), bytes.Repeat([]byte(letter), 3*inputChunk+1)); err != nil {
				t.Error(err)
			}
		})
	}
	sending.Wait()
	if err := command.CloseStdin(t.Context()); err != nil || s.closed != 1 {
		t.Errorf("CloseStdin: %v", err)
	}
	if parts := slices.Compact(slices.Clone(got)); len(got) != 9*inputChunk+3 || len(parts) != 3 {
		t.Errorf("%d bytes arrived, as %q", len(got), parts)
	}
}

func TestDisconnect(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start = silent
	sb := s.sandbox()
	command := startCommand(t, sb, nil)
	command.Disconnect()
	command.Disconnect()
	if result, err := command.Wait(t.Context()); !errors.Is(err, ErrClosed) || result == nil || !strings.Contains(err.Error(), "may still run") {
		t.Errorf("%+v, %v", result, err)
	}
	if killed := s.killed(); len(killed) != 0 {
		t.Error("it was killed")
	}
	if err := command.Kill(t.Context()); err != nil || !slices.Equal(s.killed(), []uint32{42}) {
		t.Errorf("kill: %v", err)
	}
}

// TestCloseWithCommands checks that after Close of a handle whose sandbox stays, no
// call waits and nothing is left behind. Commands of Start continue; one of Run ends.
func TestCloseWithCommands(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start = silent
	sb, err := s.client().Connect(t.Context(), testID)
	must.Do(t, err)
	command := startCommand(t, sb, nil)
	terminal, err := sb.PTY.Open(t.Context(), nil)
	must.Do(t, err)
	events := make(chan error)
	go func() {
		for _, err := range command.Events(t.Context()) {
			events <- err
		}
	}()
	if err := sb.Close(); err != nil {
		t.Error(err)
	}
	if _, err := command.Wait(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Wait: %v", err)
	}
	if err := <-events; !errors.Is(err, ErrClosed) {
		t.Errorf("Events: %v", err)
	}
	if _, err := terminal.Read(make([]byte, 1)); !errors.Is(err, ErrClosed) {
		t.Errorf("Read: %v", err)
	}
	if err := terminal.Close(); err != nil {
		t.Errorf("Close of the terminal: %v", err)
	}
	if err := command.Kill(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Kill: %v", err)
	}
	if _, err := sb.Commands.Start(t.Context(), "x", nil); !errors.Is(err, ErrClosed) {
		t.Errorf("Start: %v", err)
	}
	if killed := s.killed(); len(killed) != 0 {
		t.Errorf("killed: %v", killed)
	}
}

func TestConnectToCommand(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.list = []*process.ProcessInfo{
		{Pid: 7, Config: &process.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-c", "x"}, Envs: map[string]string{"A": "b"}, Cwd: optional("/w")}},
		{Pid: 8, Tag: optional("one")},
		{Pid: 9, Tag: optional("two")},
		{Pid: 10, Tag: optional("two")},
	}
	var asked string
	s.connect = func(_ context.Context, r *process.ConnectRequest, stream *connectStream) error {
		asked = fmt.Sprintf("%d%s", r.GetProcess().GetPid(), r.GetProcess().GetTag())
		pid := r.GetProcess().GetPid()
		switch {
		case pid == 404 || r.GetProcess().GetTag() != "":
			return connect.NewError(connect.CodeNotFound, errors.New("process not found"))
		case pid == 666:
			pid = 667
		}
		for _, event := range []*process.ProcessEvent{startEvent(pid), stdoutEvent("from now on"), {Event: &process.ProcessEvent_End{End: &process.ProcessEvent_EndEvent{Exited: true}}}} {
			_ = stream.Send(&process.ConnectResponse{Event: event})
		}
		return nil
	}
	sb := s.sandbox()
	list, err := sb.Commands.List(t.Context(), nil)
	if want := (ProcessInfo{PID: 7, Cmd: "/bin/bash", Args: []string{"-c", "x"}, Envs: map[string]string{"A": "b"}, Cwd: "/w"}); err != nil || len(list) != 4 || gocmp.Diff(want, list[0]) != "" || list[1].Tag != "one" {
		t.Errorf("List: %+v, %v", list, err)
	}
	for _, which := range []ProcessSelector{ByPID(7), ByTag("one")} {
		var out bytes.Buffer
		command, err := sb.Commands.Connect(t.Context(), which, &CommandConnectParams{Stdout: &out})
		must.Do(t, err)
		result, err := command.Wait(t.Context())
		if err != nil || result.Stdout != "from now on" || out.String() != result.Stdout || asked != fmt.Sprint(command.PID()) {
			t.Errorf("%v: asked for %s: %+v, %v", which, asked, result, err)
		}
	}
	for _, which := range []ProcessSelector{ByPID(404), ByTag("none")} {
		if _, err := sb.Commands.Connect(t.Context(), which, nil); !errors.Is(err, api.ErrNotFound) || errors.Is(err, ErrGone) {
			t.Errorf("%v: %v", which, err)
		}
	}
	for which, want := range map[ProcessSelector]string{ByTag("two"): "9 and 10", ByPID(666): "667", ByPID(0): "pid", ByPID(-1): "pid"} {
		if _, err := sb.Commands.Connect(t.Context(), which, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", which, err)
		}
	}
}

// A command that was only connected to is not ended by failures here.
func TestConnectedCommandSurvives(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.connected(func(ctx context.Context, pid uint32, send func(*process.ProcessEvent) error) error {
		_ = send(startEvent(pid))
		_ = send(stdoutEvent("x"))
		<-ctx.Done()
		return ctx.Err()
	})
	sb := s.sandbox()
	mine := errors.New("mine")
	command, err := sb.Commands.Connect(t.Context(), ByPID(5), &CommandConnectParams{Stdout: writerFunc(func([]byte) (int, error) { return 0, mine })})
	must.Do(t, err)
	if _, err := command.Wait(t.Context()); !errors.Is(err, mine) {
		t.Error(err)
	}
	sb.Detach() // waits for background work
	if killed := s.killed(); len(killed) != 0 {
		t.Error("it was killed")
	}
}

func TestStartedCommandEndsWithItsWriter(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start = func(ctx context.Context, _ *process.StartRequest, stream *startStream) error {
		_ = started(stream, 42)
		_ = stderr(stream, []byte("x"))
		<-ctx.Done()
		return ctx.Err()
	}
	mine := errors.New("mine")
	command := startCommand(t, s.sandbox(), &CommandParams{Stderr: writerFunc(func([]byte) (int, error) { return 0, mine })})
	if _, err := command.Wait(t.Context()); !errors.Is(err, mine) {
		t.Error(err)
	}
	patience.Until(t, "it is killed", func() bool { return slices.Equal(s.killed(), []uint32{42}) })
}

func TestStreamsThatBreakTheRules(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		start func(context.Context, *startStream) error
		want  string // in the error; empty: a result
	}{
		"nothing":        {func(context.Context, *startStream) error { return nil }, "connection to the command lost"},
		"no start event": {func(_ context.Context, s *startStream) error { _ = stdout(s, []byte("x")); return ended(s, 0, "") }, "first message"},
		"pid 0":          {func(_ context.Context, s *startStream) error { _ = started(s, 0); return ended(s, 0, "") }, "first message"},
		"empty event": {func(_ context.Context, s *startStream) error {
			_ = started(s, 1)
			_ = s.Send(&process.StartResponse{})
			return ended(s, 0, "")
		}, ""},
		"no end": {func(_ context.Context, s *startStream) error { return started(s, 1) }, "connection to the command lost"},
		"5 MB": {func(_ context.Context, s *startStream) error {
			_ = started(s, 1)
			return stdout(s, make([]byte, 5_000_000))
		}, "larger than configured max"},
		"a terminal's output": {func(ctx context.Context, s *startStream) error {
			_ = started(s, 1)
			return s.Send(&process.StartResponse{Event: ptyEvent([]byte("x"))})
		}, "PTY.Connect"},
		"talk after the end": {func(ctx context.Context, s *startStream) error {
			_ = started(s, 1)
			_ = ended(s, 0, "exit status 0")
			for stdout(s, make([]byte, 1<<10)) == nil && ctx.Err() == nil {
			}
			return nil
		}, ""},
		"silence after the end": {func(ctx context.Context, s *startStream) error {
			_ = started(s, 1)
			_ = ended(s, 0, "exit status 0")
			<-ctx.Done()
			return nil
		}, ""},
		"an error after the end": {func(_ context.Context, s *startStream) error {
			_ = started(s, 1)
			_ = ended(s, 0, "exit status 0")
			return connect.NewError(connect.CodeInternal, errors.New("late"))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			s.start = func(ctx context.Context, _ *process.StartRequest, stream *startStream) error {
				return tt.start(ctx, stream)
			}
			sb := s.sandbox()
			result, err := sb.Commands.Run(t.Context(), "x", nil)
			if command, startErr := sb.Commands.Start(t.Context(), "x", nil); startErr == nil {
				_, startErr = command.Wait(t.Context())
				if (err == nil) != (startErr == nil) {
					t.Errorf("Run says %v, Start and Wait %v", err, startErr)
				}
			}
			if tt.want == "" {
				if err != nil || result.Stdout != "" {
					t.Errorf("%+v, %v", result, err)
				}
			} else if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestCommandFailsInTheMiddle(t *testing.T) {
	t.Parallel()
	for code, status := range rpcStatus {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			s.start = func(_ context.Context, _ *process.StartRequest, stream *startStream) error {
				_ = started(stream, 42)
				_ = stdout(stream, []byte("so far"))
				return connect.NewError(code, errors.New("the daemon's reason"))
			}
			sb := s.sandbox()
			result, err := startCommand(t, sb, nil).Wait(t.Context())
			failed, ok := errors.AsType[*api.Error](err)
			if !ok || failed.StatusCode != status || !strings.Contains(err.Error(), "the daemon's reason") {
				t.Errorf("got %v, want an *api.Error of status %d with the daemon's reason", err, status)
			}
			if result == nil || result.Stdout != "so far" || result.ExitCode != -1 {
				t.Errorf("got %+v, want what was printed so far and -1 as exit code", result)
			}
			sb.Detach()
			if killed := s.killed(); len(killed) != 0 {
				t.Error("it was killed")
			}
		})
	}
}

// envelope is one message on the wire.
func envelope(flags byte, payload []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(payload))), payload...)
}

func TestStreamLost(t *testing.T) {
	t.Parallel()
	hello := []byte{0x0a, 0x04, 0x0a, 0x02, 0x08, 42} // event: start: pid 42
	for name, tt := range map[string]struct {
		health func(http.ResponseWriter)
		want   error
		text   string
	}{
		"the daemon lives":          {func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) }, ErrCommandLost, "may still run"},
		"the daemon is unreachable": {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, api.ErrUnavailable, "does not answer"},
		"the sandbox is gone": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusBadGateway)
			fmt.Fprintf(w, `{"sandboxId":%q,"message":"The sandbox was not found","code":502}`, testID)
		}, ErrGone, "ended during the call"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			s.raw = func(w http.ResponseWriter, r *http.Request) bool {
				switch {
				case r.URL.Path == "/health":
					tt.health(w)
				case strings.HasSuffix(r.URL.Path, "/Start"):
					w.Header().Set("Content-Type", "application/connect+proto")
					_, _ = w.Write(envelope(0, hello))
					_, _ = w.Write(envelope(0, hello)[:7])
					_ = http.NewResponseController(w).Flush()
					panic(http.ErrAbortHandler)
				default:
					return false
				}
				return true
			}
			sb := s.sandbox()
			result, err := startCommand(t, sb, nil).Wait(t.Context())
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) || result == nil {
				t.Errorf("%+v, %v", result, err)
			}
			sb.Detach()
			if killed := s.killed(); len(killed) != 0 {
				t.Error("it was killed")
			}
		})
	}
}

func TestManyStarts(t *testing.T) {
	t.Parallel()
	s := newService(t)
	release := make(chan struct{})
	s.start = func(_ context.Context, r *process.StartRequest, stream *startStream) error {
		_ = started(stream, 1)
		<-release
		_ = stdout(stream, []byte(r.GetProcess().GetArgs()[2]))
		return ended(stream, 0, "")
	}
	sb := s.sandbox()
	commands := make([]*Command, 200)
	var starting sync.WaitGroup
	for i := range commands {
		starting.Go(func() {
			var err error
			if commands[i], err = sb.Commands.Start(t.Context(), fmt.Sprint(i), nil); err != nil {
				t.Error(err)
			}
		})
	}
	starting.Wait()
	close(release)
	for i, command := range commands {
		if command == nil {
			continue
		}
		if result, err := command.Wait(t.Context()); err != nil || result.Stdout != fmt.Sprint(i) {
			t.Errorf("%d: %+v, %v", i, result, err)
		}
	}
}

// FuzzCommandStream answers a command with arbitrary bytes: it ends, within
// bounds, and a result that looks like success has an end event.
func FuzzCommandStream(f *testing.F) {
	hello := envelope(0, []byte{0x0a, 0x04, 0x0a, 0x02, 0x08, 42})
	end := envelope(0, []byte{0x0a, 0x04, 0x1a, 0x02, 0x10, 1})
	f.Add(slices.Concat(hello, end, envelope(2, []byte("{}"))))
	f.Add(slices.Concat(hello, envelope(0, []byte{0x0a, 0x05, 0x12, 0x03, 0x0a, 0x01, 0xff}), end))
	f.Add(slices.Concat(hello, envelope(2, []byte(`{"error":{"code":"internal","message":"x"}}`))))
	f.Add(slices.Concat(hello, envelope(1, []byte{1, 2, 3})))
	f.Add(hello[:3])
	s := newService(f)
	var answer []byte
	s.raw = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/Start") {
			return false
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/connect+proto")
		_, _ = w.Write(answer)
		return true
	}
	c, err := NewClient(WithAPIKey(testKey), WithAPIURL(s.url), WithSandboxURL(s.url), WithMaxRetries(0))
	must.Do(f, err)
	f.Cleanup(func() { c.Close() })
	sb, err := c.Connect(f.Context(), testID)
	must.Do(f, err)
	f.Cleanup(func() { sb.Close() })
	f.Fuzz(func(t *testing.T, data []byte) {
		answer = data
		result, err := sb.Commands.Run(t.Context(), "x", &CommandParams{MaxOutputBytes: 1 << 10})
		if err == nil && (result == nil || bytes.IndexByte(data, 0x1a) < 0) { // the tag of an end event
			t.Errorf("%+v, %v", result, err)
		}
		if result != nil && len(result.Stdout)+len(result.Stderr) > 10<<10 {
			t.Errorf("%d bytes are kept", len(result.Stdout)+len(result.Stderr))
		}
	})
}

// A writer that takes less than it was given loses output: that is an error.
func TestShortWriteOfOutput(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start = func(_ context.Context, _ *process.StartRequest, stream *startStream) error {
		return errors.Join(started(stream, 1), stdout(stream, []byte("out")), stderr(stream, []byte("error")), ended(stream, 0, "exit status 0"))
	}
	for name, p := range map[string]*CommandParams{"output": {Stdout: shortWriter{}}, "error output": {Stderr: shortWriter{}}} {
		if _, err := s.sandbox().Commands.Run(t.Context(), "work", p); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("%s: got %v, want io.ErrShortWrite", name, err)
		}
	}
}

// shortWriter takes all but the last byte.
type shortWriter struct{}

func (shortWriter) Write(p []byte) (int, error) { return len(p) - 1, nil }

// failingWriter takes nothing.
type failingWriter struct{ err error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.err }

// TestDelivery checks where each piece of the output of a command goes, and the reasons for which it is refused.
func TestDelivery(t *testing.T) {
	t.Parallel()
	full := errors.New("the disk is full")
	for name, tt := range map[string]struct {
		kind string
		to   io.Writer // for the output of this kind; nil: it takes everything
		is   error
		says string // the error; "": none
	}{
		"output":             {kind: "stdout"},
		"error output":       {kind: "stderr"},
		"of a terminal":      {kind: "pty", says: "it has a terminal: use PTY.Connect"},
		"refused":            {kind: "stdout", to: failingWriter{full}, is: full, says: "write its output: the disk is full"},
		"error refused":      {kind: "stderr", to: failingWriter{full}, is: full, says: "write its error output: the disk is full"},
		"taken in part":      {kind: "stdout", to: shortWriter{}, is: io.ErrShortWrite, says: "write its output: short write"},
		"error taken a part": {kind: "stderr", to: shortWriter{}, is: io.ErrShortWrite, says: "write its error output: short write"},
	} {
		var out, errOut bytes.Buffer
		c := newCommand(nil, "", &out, &errOut, 100)
		c.backlog = newBacklog[CommandEvent]()
		var event process.ProcessEvent_DataEvent
		switch tt.kind {
		case "stdout":
			event.Output, c.out = &process.ProcessEvent_DataEvent_Stdout{Stdout: []byte("x")}, cmp.Or[io.Writer](tt.to, &out)
		case "stderr":
			event.Output, c.errOut = &process.ProcessEvent_DataEvent_Stderr{Stderr: []byte("x")}, cmp.Or[io.Writer](tt.to, &errOut)
		default:
			event.Output = &process.ProcessEvent_DataEvent_Pty{Pty: []byte("x")}
		}
		said, err := "", c.deliver(t.Context(), &event)
		if err != nil {
			said = err.Error()
		}
		if said != tt.says || tt.is != nil && !errors.Is(err, tt.is) {
			t.Errorf("%s: got error %v, want %q", name, err, tt.says)
		}
		of := map[bool]string{true: "x"}
		stdout, stderr := of[tt.kind == "stdout"], of[tt.kind == "stderr"]
		kept, wrote := c.stdout.Text()+"|"+c.stderr.Text(), out.String()+"|"+errOut.String()
		if want := stdout + "|" + stderr; kept != want || tt.to == nil && wrote != want {
			t.Errorf("%s: kept %q and wrote %q, want %q", name, kept, wrote, want)
		}
		pushed, ok, _ := c.backlog.pop()
		if ok != (tt.says == "") || string(pushed.Stdout)+"|"+string(pushed.Stderr) != map[bool]string{true: stdout + "|" + stderr, false: "|"}[ok] {
			t.Errorf("%s: the event is %+v, %v", name, pushed, ok)
		}
	}
}
