package sandbox

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
	"github.com/e2bctl/e2bctl/internal/gen/filesystem/filesystemconnect"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/relaytest"
)

// sleeper is a service whose sandbox can be paused, which cuts every connection into it.
type sleeper struct {
	*service
	relay      *relaytest.Relay
	autoResume bool

	mu        sync.Mutex
	paused    bool
	since     time.Time // when it was started or resumed
	wakes     int       // by requests
	questions int       // whether it is paused
}

func newSleeper(t *testing.T, autoResume bool) *sleeper {
	t.Helper()
	s := &sleeper{service: newService(t), autoResume: autoResume, since: time.Now()}
	s.service.control = s.control
	inside := httptest.NewServer(http.HandlerFunc(s.edge))
	t.Cleanup(inside.Close)
	s.relay = relaytest.New(t, inside.URL)
	return s
}

func (s *sleeper) sandbox(t *testing.T, opts ...CreateOption) *Sandbox {
	t.Helper()
	sb, err := s.client(WithSandboxURL(s.relay.URL())).Create(t.Context(), opts...)
	must.Do(t, err)
	t.Cleanup(func() { sb.Close() })
	return sb
}

// change changes something.
func (s *sleeper) change(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

// until waits until something is so.
func (s *sleeper) until(t *testing.T, what string, so func() bool) {
	t.Helper()
	patience.Until(t, what, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return so()
	})
}

// pause pauses the sandbox as the end of its lifetime, or another program, does.
func (s *sleeper) pause() {
	s.change(func() { s.paused = true })
	s.relay.Cut()
}

func (s *sleeper) resume() { s.change(func() { s.paused, s.since = false, time.Now() }) }

func (s *sleeper) woken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wakes
}

func (s *sleeper) control(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/pause"):
		s.pause()
	case strings.HasSuffix(r.URL.Path, "/connect"):
		s.resume()
	case r.Method == http.MethodGet:
		s.change(func() {
			s.questions++
			state := "running"
			if s.paused {
				state = "paused"
			}
			w.WriteHeader(http.StatusOK)
			fmt.Fprintf(w, `{"sandboxID":%q,"state":%q,"startedAt":%q}`, testID, state, s.since.Format(time.RFC3339Nano))
		})
	}
}

func (s *sleeper) edge(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	paused := s.paused
	s.mu.Unlock()
	switch {
	case !paused:
	case !s.autoResume || r.URL.Path == "/health":
		w.WriteHeader(http.StatusBadGateway)
		fmt.Fprintf(w, `{"sandboxId":%q,"message":"The sandbox was not found","code":502}`, testID)
		return
	default:
		s.resume()
		s.change(func() { s.wakes++ })
	}
	s.ServeHTTP(w, r)
}

// running is a process that prints, and runs until its stream is cut.
func running(pid uint32, out string) func(context.Context, *process.StartRequest, *startStream) error {
	return func(ctx context.Context, _ *process.StartRequest, stream *startStream) error {
		if err := started(stream, pid); err != nil {
			return err
		}
		_ = stdout(stream, []byte(out))
		<-ctx.Done()
		return nil
	}
}

// arrival is sent to when output arrives.
type arrival chan struct{}

func (a arrival) Write(p []byte) (int, error) {
	select {
	case a <- struct{}{}:
	default:
	}
	return len(p), nil
}

// goesOn returns a handler of Connect that sends the start of the process pid, and then events.
func goesOn(pid uint32, events ...*process.ProcessEvent) func(context.Context, *process.ConnectRequest, *connectStream) error {
	return func(_ context.Context, _ *process.ConnectRequest, stream *connectStream) error {
		start := &process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: pid}}}
		for _, e := range append([]*process.ProcessEvent{start}, events...) {
			if err := stream.Send(&process.ConnectResponse{Event: e}); err != nil {
				return err
			}
		}
		return nil
	}
}

func outEvent(text string) *process.ProcessEvent {
	return &process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stdout{Stdout: []byte(text)}}}}
}

func endEvent(code int32) *process.ProcessEvent {
	return &process.ProcessEvent{Event: &process.ProcessEvent_End{End: &process.ProcessEvent_EndEvent{ExitCode: code, Exited: true}}}
}

// TestCommandGoesOn checks that a command that the caller waits for continues after a
// pause, and that its result says that output may be missing.
func TestCommandGoesOn(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		list    []*process.ProcessInfo // that are there afterwards
		connect func(context.Context, *process.ConnectRequest, *connectStream) error
		auto    bool
		want    *CommandResult
		err     []error
	}{
		"it goes on":             {nil, goesOn(7, outEvent("after"), endEvent(0)), true, &CommandResult{Stdout: "beforeafter", OutputCut: true}, nil},
		"it fails":               {nil, goesOn(7, endEvent(3)), true, &CommandResult{ExitCode: 3, Stdout: "before", OutputCut: true}, nil},
		"it has ended":           {nil, absent, true, nil, []error{ErrCommandLost}},
		"its pid is another's":   {[]*process.ProcessInfo{{Pid: 7, Config: &process.ProcessConfig{Cmd: "/bin/other"}}}, goesOn(7, endEvent(0)), true, nil, []error{ErrCommandLost}},
		"nothing resumes it":     {nil, nil, false, nil, []error{ErrCommandLost, ErrGone}},
		"the daemon is confused": {nil, goesOn(8), true, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSleeper(t, test.auto)
			printed := make(arrival, 1)
			s.start, s.connect, s.list = running(7, "before"), test.connect, test.list
			sb := s.sandbox(t)
			go func() {
				<-printed
				s.pause()
			}()
			ctx := patience.Context(t)
			if name == "the daemon is confused" {
				var leave context.CancelFunc
				ctx, leave = context.WithCancel(ctx)
				go func() {
					s.until(t, "it was woken", func() bool { return s.wakes > 0 })
					leave()
				}()
			}
			result, err := sb.Commands.Run(ctx, "work", &CommandParams{Stdout: printed})
			for _, want := range test.err {
				if !errors.Is(err, want) {
					t.Errorf("got %v, want %v", err, want)
				}
			}
			if test.want == nil {
				if err == nil {
					t.Errorf("got %+v and no error, want one", result)
				}
				return
			}
			if _, exited := errors.AsType[*ExitError](err); err != nil && !exited {
				t.Fatal(err)
			}
			if result.Stdout != test.want.Stdout || result.ExitCode != test.want.ExitCode || result.OutputCut != test.want.OutputCut {
				t.Errorf("got %+v, want %+v", result, test.want)
			}
		})
	}
}

func absent(context.Context, *process.ConnectRequest, *connectStream) error {
	return connect.NewError(connect.CodeNotFound, errors.New("process with pid 7 not found"))
}

// TestUnwatchedCommandLetsSleep checks that a sandbox is not resumed for a command that no
// call waits for, until one does.
func TestUnwatchedCommandLetsSleep(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]func(context.Context, *Command) error{
		"Wait": func(ctx context.Context, c *Command) error { _, err := c.Wait(ctx); return err },
		"Events": func(ctx context.Context, c *Command) error {
			for _, err := range c.Events(ctx) {
				if err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSleeper(t, true)
			printed := make(arrival, 1)
			s.start, s.connect = running(7, "before"), goesOn(7, endEvent(0))
			sb := s.sandbox(t)
			command, err := sb.Commands.Start(t.Context(), "work", &CommandParams{Stdout: printed})
			must.Do(t, err)
			<-printed
			s.pause()
			s.until(t, "the handle asked why it was cut", func() bool { return s.questions > 0 })
			if n := s.woken(); n != 0 {
				t.Errorf("got %d wakes while nobody waits, want none", n)
			}
			if err := wait(t.Context(), command); err != nil {
				t.Error(err)
			}
			if n := s.woken(); n != 1 {
				t.Errorf("got %d wakes, want 1", n)
			}
		})
	}
}

// TestOutputFlowsAgain checks that, when another call has resumed the sandbox, a command
// that no call waits for is followed again, too.
func TestOutputFlowsAgain(t *testing.T) {
	t.Parallel()
	s := newSleeper(t, true)
	printed := make(arrival, 1)
	s.start, s.connect = running(7, "before"), goesOn(7, outEvent("after"), endEvent(0))
	sb := s.sandbox(t)
	command, err := sb.Commands.Start(t.Context(), "work", &CommandParams{Stdout: printed})
	must.Do(t, err)
	<-printed
	s.pause()
	s.until(t, "the handle asked why it was cut", func() bool { return s.questions > 0 })
	if _, err := sb.Commands.List(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	<-printed
	if result, err := command.Wait(t.Context()); err != nil || result.Stdout != "beforeafter" || s.woken() != 1 {
		t.Errorf("got %+v, %v after %d wakes, want all output after 1", result, err, s.woken())
	}
}

// TestInputAwaitsStream checks that input typed after a pause is sent only when the stream
// is open again: before that, the program's answer would be lost.
func TestInputAwaitsStream(t *testing.T) {
	t.Parallel()
	s := newSleeper(t, true)
	var mu sync.Mutex
	var order []string
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, what)
	}
	typed := make(chan struct{})
	s.start = func(ctx context.Context, _ *process.StartRequest, stream *startStream) error {
		_ = started(stream, 7)
		<-ctx.Done()
		return nil
	}
	s.connect = func(ctx context.Context, r *process.ConnectRequest, stream *connectStream) error {
		note("stream")
		if err := goesOn(7)(ctx, r, stream); err != nil {
			return err
		}
		<-typed
		return stream.Send(&process.ConnectResponse{Event: endEvent(0)})
	}
	s.input = func(*process.SendInputRequest) { note("input"); close(typed) }
	terminal := openTerminal(t, s.sandbox(t), nil)
	s.pause()
	s.until(t, "the handle asked why it was cut", func() bool { return s.questions > 0 })
	patience.Until(t, "the stream is known to be cut", func() bool {
		terminal.process.mu.Lock()
		defer terminal.process.mu.Unlock()
		return terminal.process.away != nil
	})
	if _, err := terminal.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := terminal.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if got := fmt.Sprint(order); got != "[stream input]" {
		t.Errorf("got %s, want [stream input]", got)
	}
}

// TestOwnPauseLasts checks that a call in flight does not undo the pause that its handle
// asked for. The call continues after Resume, or when another call resumes the sandbox.
func TestOwnPauseLasts(t *testing.T) {
	t.Parallel()
	for name, resume := range map[string]func(context.Context, *Sandbox) error{
		"Resume": func(ctx context.Context, sb *Sandbox) error { return sb.Resume(ctx, nil) },
		"a call": func(ctx context.Context, sb *Sandbox) error { _, err := sb.Commands.List(ctx, nil); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSleeper(t, true)
			printed := make(arrival, 1)
			s.start, s.connect = running(7, "before"), goesOn(7, outEvent("after"), endEvent(0))
			sb := s.sandbox(t)
			ended := make(chan error, 1)
			go func() {
				result, err := sb.Commands.Run(t.Context(), "work", &CommandParams{Stdout: printed})
				if err == nil && result.Stdout != "beforeafter" {
					err = fmt.Errorf("got %q, want %q", result.Stdout, "beforeafter")
				}
				ended <- err
			}()
			<-printed
			must.Do(t, sb.Pause(t.Context(), nil))
			s.until(t, "the call asked why it was cut", func() bool { return s.questions > 0 })
			select {
			case err := <-ended:
				t.Fatalf("it ended with %v while the sandbox was paused", err)
			default:
			}
			if n := s.woken(); n != 0 {
				t.Errorf("got %d wakes, want none", n)
			}
			must.Do(t, resume(t.Context(), sb))
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOwnPauseOfFiles checks that calls in flight return if a pause of files alone ends the
// processes that they wait for.
func TestOwnPauseOfFiles(t *testing.T) {
	t.Parallel()
	s := newSleeper(t, false)
	printed := make(arrival, 1)
	s.start = running(7, "before")
	sb := s.sandbox(t)
	ended := make(chan error, 1)
	go func() {
		_, err := sb.Commands.Run(t.Context(), "work", &CommandParams{Stdout: printed})
		ended <- err
	}()
	<-printed
	must.Do(t, sb.Pause(t.Context(), &PauseParams{Mode: PauseFilesystem}))
	if err := <-ended; !errors.Is(err, ErrCommandLost) || !errors.Is(err, ErrGone) {
		t.Errorf("got %v, want %v and %v", err, ErrCommandLost, ErrGone)
	}
}

// TestOtherProcess: a signal for a command of before does not reach the process that has
// its pid after the sandbox was started anew.
func TestOtherProcess(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(context.Context, *process.ConnectRequest, *connectStream) error{"another": goesOn(7, endEvent(0)), "none": absent} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSleeper(t, true)
			s.start, s.connect = running(7, "before"), connect
			s.list = []*process.ProcessInfo{{Pid: 7, Config: &process.ProcessConfig{Cmd: "/bin/other"}}}
			printed := make(arrival, 1)
			command, err := s.sandbox(t).Commands.Start(t.Context(), "work", &CommandParams{Stdout: printed})
			must.Do(t, err)
			<-printed
			s.pause()
			if _, err := command.Wait(t.Context()); !errors.Is(err, ErrCommandLost) {
				t.Errorf("got %v, want %v", err, ErrCommandLost)
			}
			if err := command.Kill(t.Context()); !errors.Is(err, os.ErrProcessDone) || len(s.signals) > 0 {
				t.Errorf("got %v and %d signals, want %v and none", err, len(s.signals), os.ErrProcessDone)
			}
		})
	}
}

// TestWatchCut: a watch whose sandbox was paused says that events may be missing.
func TestWatchCut(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		resumed bool
		want    error
	}{"resumed": {true, ErrWatchOverflow}, "still paused": {false, ErrGone}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSleeper(t, false)
			s.raw = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != filesystemconnect.FilesystemWatchDirProcedure {
					return false
				}
				w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
				start, err := proto.Marshal(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Start{Start: &filesystem.WatchDirResponse_StartEvent{}}})
				if err != nil {
					t.Error(err)
				}
				_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(start))), start...))
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				return true
			}
			watch, err := s.sandbox(t).Files.Watch(t.Context(), "d", nil)
			must.Do(t, err)
			defer watch.Close()
			s.pause()
			if test.resumed {
				s.resume()
			}
			for _, err := range watch.Events(t.Context()) {
				if !errors.Is(err, test.want) {
					t.Errorf("got %v, want %v", err, test.want)
				}
			}
		})
	}
}

// TestDialLetsSleep: a connection that a pause cut off breaks, and its relay is ended when
// the sandbox runs again.
func TestDialLetsSleep(t *testing.T) {
	t.Parallel()
	s := newSleeper(t, true)
	s.start = running(7, "+hello")
	sb := s.sandbox(t)
	conn, err := sb.Dial(t.Context(), 5432)
	must.Do(t, err)
	defer conn.Close()
	if _, err := io.ReadFull(conn, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	s.pause()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, ErrGone) {
		t.Errorf("got %v, want %v", err, ErrGone)
	}
	ended := func() bool {
		s.service.mu.Lock()
		defer s.service.mu.Unlock()
		return len(s.signals) == 1
	}
	if s.woken() != 0 || ended() {
		t.Errorf("got %d wakes, and the relay ended: %v, want neither", s.woken(), ended())
	}
	patience.Until(t, "the relay has ended", func() bool {
		_, err := sb.Commands.List(t.Context(), nil)
		must.Do(t, err)
		return ended()
	})
}

// TestTerminalGoesOn: a terminal whose output is read shows on after a pause.
func TestTerminalGoesOn(t *testing.T) {
	t.Parallel()
	s := newSleeper(t, true)
	printed := make(arrival, 1)
	s.start = func(ctx context.Context, _ *process.StartRequest, stream *startStream) error {
		_ = started(stream, 7)
		_ = showed(stream, []byte("before"))
		<-ctx.Done()
		return nil
	}
	s.connect = goesOn(7, ptyEvent([]byte("after")), endEvent(0))
	terminal := openTerminal(t, s.sandbox(t), nil)
	go func() {
		<-printed
		s.pause()
	}()
	if got, err := io.ReadAll(io.TeeReader(terminal, printed)); err != nil || string(got) != "beforeafter" {
		t.Errorf("got %q, %v, want %q", got, err, "beforeafter")
	}
	if err := terminal.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestInputCut: input that may not have arrived is not sent again, and the command is
// reported as lost.
func TestInputCut(t *testing.T) {
	t.Parallel()
	s := newSleeper(t, true)
	s.start = running(7, "")
	s.connect = goesOn(7)
	pausing := make(chan struct{}, 8)
	s.input = func(*process.SendInputRequest) {
		pausing <- struct{}{}
		s.pause()
	}
	_, err := s.sandbox(t).Commands.Run(t.Context(), "cat", &CommandParams{Stdin: strings.NewReader("data")})
	if !errors.Is(err, ErrCommandLost) || len(pausing) != 1 {
		t.Errorf("got %v after %d inputs, want %v after one", err, len(pausing), ErrCommandLost)
	}
}

// TestQuestionsAreRepeated checks that calls that only read are repeated after a pause, and
// that calls that may have changed something are not.
func TestQuestionsAreRepeated(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		do    func(context.Context, *Sandbox) error
		calls int
	}{
		"read":  {func(ctx context.Context, sb *Sandbox) error { _, err := sb.Files.Read(ctx, "f", nil); return err }, 2},
		"list":  {func(ctx context.Context, sb *Sandbox) error { _, err := sb.Commands.List(ctx, nil); return err }, 2},
		"write": {func(ctx context.Context, sb *Sandbox) error { return sb.Files.Write(ctx, "f", []byte("x"), nil) }, 1},
		"kill":  {func(ctx context.Context, sb *Sandbox) error { return sb.Commands.Kill(ctx, ByPID(3), nil) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSleeper(t, true)
			calls := 0
			s.files = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "content") }
			s.raw = func(_ http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path == "/health" {
					return false
				}
				if calls++; calls > 1 {
					return false
				}
				_, _ = io.Copy(io.Discard, r.Body)
				s.pause()
				panic(http.ErrAbortHandler)
			}
			err := test.do(t.Context(), s.sandbox(t))
			if (err == nil) != (test.calls == 2) || calls != test.calls {
				t.Errorf("got %v after %d calls, want %d calls", err, calls, test.calls)
			}
		})
	}
}

// TestCloseLetsSleep: a handle that kills its paused sandbox asks nothing more of it,
// even with a command in flight.
func TestCloseLetsSleep(t *testing.T) {
	t.Parallel()
	s := newSleeper(t, true)
	printed := make(arrival, 1)
	s.start = running(7, "before")
	sb := s.sandbox(t)
	ended := make(chan error, 1)
	go func() {
		_, err := sb.Commands.Run(t.Context(), "work", &CommandParams{Stdout: printed})
		ended <- err
	}()
	<-printed
	must.Do(t, sb.Pause(t.Context(), nil))
	s.until(t, "the call asked why it was cut", func() bool { return s.questions > 0 })
	if err := sb.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want %v", err, ErrClosed)
	}
	if n := s.woken(); n != 0 || s.seen("DELETE /sandboxes/") != 1 {
		t.Errorf("got %d wakes and %d kills, want none and 1", n, s.seen("DELETE /sandboxes/"))
	}
}

// TestLeaseOutlastsPause checks that renewals that fail because of a pause neither end the
// lease nor are logged. They continue when another program has resumed the sandbox.
func TestLeaseOutlastsPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		state, renewed := "running", 0
		set := func(s string) {
			mu.Lock()
			defer mu.Unlock()
			state, renewed = s, 0
		}
		var log strings.Builder
		c, err := NewClient(WithAPIKey(testKey), WithEnvFile(""), WithMaxRetries(0), WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))), WithTransport(memory(func(r *http.Request) (int, string) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case strings.HasSuffix(r.URL.Path, "/refreshes") && state == "running":
				renewed++
				return 204, ""
			case strings.HasSuffix(r.URL.Path, "/refreshes") && state == "paused":
				return 404, `{"code":404,"message":"sandbox i1 is paused"}`
			case strings.HasSuffix(r.URL.Path, "/refreshes"):
				return 409, `{"code":409,"message":"sandbox i1 is being paused"}`
			case r.Method == http.MethodGet:
				return 200, `{"sandboxID":"i1","state":"paused"}`
			case r.Method == http.MethodPost:
				return 201, `{"sandboxID":"i1"}`
			}
			return 204, ""
		})))
		must.Do(t, err)
		defer c.Close()
		sb, err := c.Create(t.Context(), WithExpiry(Expiry{After: time.Minute, Renew: true}))
		must.Do(t, err)
		defer sb.Close()
		for _, s := range []string{"pausing", "paused"} {
			set(s)
			<-time.After(time.Hour + time.Second) // never at the moment of a renewal
		}
		set("running")
		<-time.After(5 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if renewed < 9 || renewed > 11 {
			t.Errorf("got %d renewals in five minutes after the resume, want 9 to 11", renewed)
		}
		if log.Len() > 0 {
			t.Errorf("got the log %s, want none", log.String())
		}
	})
}
