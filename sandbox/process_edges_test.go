package sandbox

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/gen/process/processconnect"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// refuseCall answers a call of the daemon with an error.
func refuseCall(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, `{"code":"`+code+`","message":"refused"}`)
}

// keeps makes a stream one of a daemon that keeps output, as the request that was received last asked.
func (s *service) keeps(answer http.Header) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range []string{protocol.HeaderOutputFrom, protocol.HeaderOutputOf} {
		answer.Set(name, s.headers.Get(name))
	}
	answer.Set(protocol.HeaderOutputStream, "stream")
}

// TestReportsNameTheirStream checks that reports of received output name the process, the stream, the offset and the user.
func TestReportsNameTheirStream(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.update = func(r *process.UpdateRequest) {
		if r.GetProcess().GetPid() != 7 {
			t.Errorf("a report about %v, want process 7", r.GetProcess())
		}
	}
	a := &attachment{sb: s.sandbox(), user: "me", pid: 7, id: "process", streamID: "stream"}
	want := map[string]string{protocol.HeaderOutputFrom: "123", protocol.HeaderOutputOf: "process", protocol.HeaderOutputStream: "stream"}
	sent := func(what string) {
		t.Helper()
		s.mu.Lock()
		defer s.mu.Unlock()
		got := map[string]string{}
		for name := range want {
			got[name] = s.headers.Get(name)
		}
		user, _, _ := (&http.Request{Header: s.headers}).BasicAuth()
		if diff := cmp.Diff(want, got); diff != "" || user != "me" {
			t.Errorf("%s of %q (-want +got):\n%s", what, user, diff)
		}
		s.headers = http.Header{}
	}
	must.Do(t, a.report(t.Context(), 123))
	sent("a report")
	open, err := a.reportSteps(t.Context(), 123)
	must.Do(t, err)
	_ = open.step()
	open.close()
	sent("a request for reports")
	s.raw = func(w http.ResponseWriter, _ *http.Request) bool {
		refuseCall(w, http.StatusForbidden, "permission_denied")
		return true
	}
	if err := a.report(t.Context(), 123); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("a report that is refused: got error %v", err)
	}
	a.config = &process.ProcessConfig{Cmd: "x"}
	if err := a.checkSameProcess(t.Context()); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("the processes are not listed: got error %v", err)
	}
}

// TestDaemonAsksForReports checks that the daemon receives a report when it asks for one, and that a daemon that
// begins at an impossible offset is an error which ends its stream.
func TestDaemonAsksForReports(t *testing.T) {
	t.Parallel()
	s := newService(t)
	reported := make(chan string, 1)
	s.update = func(*process.UpdateRequest) {}
	s.raw = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == processconnect.ProcessUpdateProcedure {
			reported <- r.Header.Get(protocol.HeaderOutputFrom)
		}
		return false
	}
	s.start = func(ctx context.Context, _ *process.StartRequest, stream *startStream) error {
		s.keeps(stream.ResponseHeader())
		_ = errors.Join(started(stream, 1), stdout(stream, []byte("12345")))
		_ = stream.Send(&process.StartResponse{Event: &process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: &process.ProcessEvent_DataEvent{}}}})
		select {
		case offset := <-reported:
			if offset != "5" {
				t.Errorf("the output before %s was reported as received, want 5", offset)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		return ended(stream, 0, "exit status 0")
	}
	sb := s.sandbox()
	_, err := sb.Commands.Run(patience.Context(t), "x", nil)
	must.Do(t, err)
	left := make(chan struct{})
	s.start = func(ctx context.Context, _ *process.StartRequest, stream *startStream) error {
		stream.ResponseHeader().Set(protocol.HeaderOutputFrom, "nowhere")
		_ = started(stream, 1)
		<-ctx.Done()
		close(left)
		return ctx.Err()
	}
	if _, err := sb.Commands.Run(t.Context(), "x", nil); err == nil || !strings.Contains(err.Error(), "not a number of bytes") {
		t.Errorf("got error %v, want one about the offset", err)
	}
	patience.Receive(t, "the end of the stream", left)
}

// TestStreamsWithoutOutput checks after how many streams that end at once a command counts as lost.
func TestStreamsWithoutOutput(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		lasts  time.Duration
		output bool
		want   int // connections after the first
		lost   bool
	}{
		"at once":              {0, false, maxFruitless - 1, true},
		"not quite at once":    {maxRejoinPause, false, maxFruitless - 1, true},
		"later":                {maxRejoinPause + 1, false, 2 * maxFruitless, false},
		"at once, with output": {0, true, 2 * maxFruitless, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newPipedService(t)
				connections := 0
				s.start = func(_ context.Context, _ *process.StartRequest, stream *startStream) error {
					s.keeps(stream.ResponseHeader())
					return started(stream, 1)
				}
				s.connect = func(_ context.Context, _ *process.ConnectRequest, stream *connect.ServerStream[process.ConnectResponse]) error {
					connections++
					s.keeps(stream.ResponseHeader())
					send := func(e *process.ProcessEvent) { _ = stream.Send(&process.ConnectResponse{Event: e}) }
					send(&process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: 1}}})
					if tt.output {
						send(&process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stdout{Stdout: []byte("x")}}}})
					}
					<-time.After(tt.lasts)
					if connections == 2*maxFruitless {
						send(&process.ProcessEvent{Event: &process.ProcessEvent_End{End: &process.ProcessEvent_EndEvent{Exited: true}}})
					}
					return nil
				}
				_, err := s.sandbox().Commands.Run(t.Context(), "x", nil)
				if errors.Is(err, ErrCommandLost) != tt.lost || !tt.lost && err != nil || connections != tt.want {
					t.Errorf("got error %v after %d connections, want it lost: %v, after %d", err, connections, tt.lost, tt.want)
				}
			})
		})
	}
}

// TestMissingPrograms checks that a program counts as missing only if a second command, with the same user, directory and
// variables, finds that.
func TestMissingPrograms(t *testing.T) {
	t.Parallel()
	for code, want := range map[int32]bool{44: true, 0: false, 1: false, -1: false} {
		for _, p := range []*CommandParams{nil, {User: "me", Cwd: "/c", Envs: map[string]string{"PATH": "/p"}, Timeout: time.Hour}} {
			s := newService(t)
			asked := 0
			s.start = func(_ context.Context, r *process.StartRequest, stream *startStream) error {
				s.mu.Lock()
				defer s.mu.Unlock()
				config := r.GetProcess()
				if p != nil && (s.starter != "me" || config.GetCwd() != "/c" || config.GetEnvs()["PATH"] != "/p") {
					t.Errorf("%q runs as %q with %v", config.GetArgs(), s.starter, config)
				}
				if !strings.Contains(strings.Join(config.GetArgs(), " "), "exit 44") {
					return errors.Join(started(stream, 1), ended(stream, 127, "exit status 127"))
				}
				if asked++; code < 0 {
					return errors.New("broken")
				}
				return errors.Join(started(stream, 2), ended(stream, code, "exit status"))
			}
			result, err := s.sandbox().Commands.Exec(t.Context(), "program", nil, p)
			exit, _ := errors.AsType[*ExitError](err)
			if errors.Is(err, exec.ErrNotFound) != want || exit == nil || result.ExitCode != 127 || asked != 1 {
				t.Errorf("the second command ends with %d: got %v after %d of them, want the program missing: %v", code, err, asked, want)
			}
		}
	}
}

// TestKillOfATerminalThatIsGone checks which errors of the kill are no errors of Close, because nothing runs.
func TestKillOfATerminalThatIsGone(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(s *service, sb *Sandbox)
		want   error
	}{
		"it has ended":        {func(s *service, _ *Sandbox) { s.raw = refusal(http.StatusNotFound, "not_found") }, nil},
		"the sandbox is gone": {func(s *service, _ *Sandbox) { s.mu.Lock(); s.gone = true; s.mu.Unlock() }, nil},
		"the handle is closed": {func(_ *service, sb *Sandbox) {
			sb.mu.Lock()
			sb.closing = func() error { return nil }
			sb.mu.Unlock()
		}, nil},
		"refused": {func(s *service, _ *Sandbox) { s.raw = refusal(http.StatusForbidden, "permission_denied") }, api.ErrForbidden},
	} {
		s := newService(t)
		s.start = func(ctx context.Context, _ *process.StartRequest, stream *startStream) error {
			_ = started(stream, 1)
			<-ctx.Done()
			return ctx.Err()
		}
		sb := s.sandbox()
		terminal := openTerminal(t, sb, nil)
		tt.change(s, sb)
		if err := terminal.Close(); !errors.Is(err, tt.want) || tt.want == nil && err != nil {
			t.Errorf("%s: got error %v, want %v", name, err, tt.want)
		}
		sb.mu.Lock()
		sb.closing = nil
		sb.mu.Unlock()
	}
}

// refusal refuses all signals for processes.
func refusal(status int, code string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != processconnect.ProcessSendSignalProcedure {
			return false
		}
		refuseCall(w, status, code)
		return true
	}
}

// TestLivesOfSandboxes checks the end of the life that a handle expects.
func TestLivesOfSandboxes(t *testing.T) {
	t.Parallel()
	c := newService(t).client()
	for name, tt := range map[string]struct {
		expiry            Expiry
		created, inherits bool
		want              time.Duration
	}{
		"the usual":            {Expiry{}, true, false, DefaultLifetime},
		"a lifetime":           {Expiry{After: time.Hour}, true, false, time.Hour},
		"an idle limit":        {Expiry{Idle: time.Minute}, true, false, longestLife},
		"both":                 {Expiry{Idle: time.Minute, After: time.Hour}, true, false, time.Hour},
		"of another":           {Expiry{Idle: time.Minute}, false, false, DefaultLifetime},
		"a copy's":             {Expiry{Idle: time.Minute}, true, true, DefaultLifetime},
		"paused at its end":    {Expiry{Then: ThenPause}, true, false, DefaultLifetime},
		"paused after an hour": {Expiry{Then: ThenPause, After: time.Hour}, true, false, time.Hour},
	} {
		sb := newSandbox(c, &api.Sandbox{ID: "i"}, sandboxConfig{expiry: tt.expiry, inherits: tt.inherits}, tt.created)
		if left := time.Until(sb.end()); left > tt.want || left < tt.want-time.Minute {
			t.Errorf("%s: %v are left, want %v", name, left, tt.want)
		}
		must.Do(t, sb.Detach())
	}
}

// TestCloseDoesNotWaitForEver checks that Close reports calls that do not end.
func TestCloseDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newPipedService(t)
		sb, err := s.client().Create(t.Context())
		must.Do(t, err)
		sb.running.Add(1)
		begun := time.Now()
		err = sb.Close()
		if err == nil || !strings.Contains(err.Error(), "calls in flight did not end in 10s") || time.Since(begun) != closeTimeout {
			t.Errorf("got error %v after %v, want one after %v", err, time.Since(begun), closeTimeout)
		}
		sb.running.Done()
	})
}

// TestCloseEndsWorkInTheBackground checks that Close, after it has ended the sandbox, does not wait
// for a daemon that answers no more, and that it waits if the sandbox goes on.
func TestCloseEndsWorkInTheBackground(t *testing.T) {
	t.Parallel()
	hangs := func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != processconnect.ProcessSendSignalProcedure {
			return false
		}
		_, _ = io.Copy(io.Discard, r.Body) // only then the server notices the end of the connection
		<-r.Context().Done()
		return true
	}
	for name, tt := range map[string]struct {
		refused int  // the status of the answer to the kill of the sandbox; 0: it succeeds
		waits   bool // until the time of the work has passed
		err     string
	}{
		"of a sandbox":        {},
		"of one that is gone": {refused: http.StatusNotFound},
		"of one that goes on": {refused: http.StatusForbidden, waits: true, err: "403"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newPipedService(t)
				s.raw = hangs
				s.start = func(ctx context.Context, _ *process.StartRequest, stream *startStream) error {
					_ = started(stream, 1)
					<-ctx.Done()
					return ctx.Err()
				}
				s.control = func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodDelete && tt.refused != 0 {
						w.WriteHeader(tt.refused)
					}
				}
				var log strings.Builder
				sb, err := s.client(WithLogger(slog.New(slog.NewTextHandler(&log, nil)))).Create(t.Context())
				must.Do(t, err)
				runAndCancel(t, sb)
				synctest.Wait()
				begun := time.Now()
				err = sb.Close()
				if took := time.Since(begun); took != map[bool]time.Duration{true: closeTimeout}[tt.waits] {
					t.Errorf("Close took %v, want to wait for the work: %t", took, tt.waits)
				}
				if err == nil != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got error %v, want %q", err, tt.err)
				}
				sb.running.Wait() // Close gave up at the moment at which the work did
				synctest.Wait()
				if said := strings.Contains(log.String(), "may still run"); said != tt.waits {
					t.Errorf("the log has %q, want that the command may still run: %t", log.String(), tt.waits)
				}
				if len(sb.calls) != 0 {
					t.Errorf("%d calls are left", len(sb.calls))
				}
				sb.background(t.Context(), func(ctx context.Context) { // of a call that ended late
					if cause := context.Cause(ctx); errors.Is(cause, ErrGone) == tt.waits {
						t.Errorf("work after the end of the sandbox: got %v", cause)
					}
				})
				sb.running.Wait()
			})
		})
	}
}

// runAndCancel starts a command and cancels the call. The kill of the command follows in the background.
func runAndCancel(t *testing.T, sb *Sandbox) {
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() {
		_, err := sb.Commands.Run(ctx, "sleep 1000", nil)
		ran <- err
	}()
	synctest.Wait()
	cancel()
	must.Is(t, <-ran, context.Canceled)
}
