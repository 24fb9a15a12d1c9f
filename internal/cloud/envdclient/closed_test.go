package envdclient

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/gen/process/processconnect"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/pipetest"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// serve returns a client for a sandbox with this handler, and a count of the things that its calls hold.
func serve(t *testing.T, handler http.Handler) (*Client, *held) {
	t.Helper()
	pipes := pipetest.Serve(t, handler)
	c := New(func(ctx context.Context, _ int) (net.Conn, error) { return pipes.DialContext(ctx, "", "") }, "secret")
	t.Cleanup(c.Close)
	h := &held{next: c.transport}
	c.http.Transport = h
	return c, h
}

// held counts the answers that have not been closed, and the calls whose context has not ended.
type held struct {
	next           http.RoundTripper
	answers, calls atomic.Int32
}

func (h *held) RoundTrip(request *http.Request) (*http.Response, error) {
	h.calls.Add(1)
	context.AfterFunc(request.Context(), func() { h.calls.Add(-1) })
	answer, err := h.next.RoundTrip(request)
	if err == nil {
		h.answers.Add(1)
		answer.Body = &body{ReadCloser: answer.Body, closed: sync.OnceFunc(func() { h.answers.Add(-1) })}
	}
	return answer, err
}

type body struct {
	io.ReadCloser

	closed func()
}

func (b *body) Close() error {
	b.closed()
	return b.ReadCloser.Close()
}

// watched is a context that counts the functions that wait for its end.
type watched struct {
	done    chan struct{}
	waiting atomic.Int32
}

func (*watched) Deadline() (end time.Time, ok bool) { return time.Time{}, false }
func (w *watched) Done() <-chan struct{}            { return w.done }
func (*watched) Err() error                         { return nil }
func (*watched) Value(any) any                      { return nil }

// AfterFunc is called by package context.
func (w *watched) AfterFunc(func()) (stop func() bool) {
	w.waiting.Add(1)
	return sync.OnceValue(func() bool { w.waiting.Add(-1); return true })
}

// daemon is an envd whose commands send the events that their name describes.
type daemon struct {
	processconnect.UnimplementedProcessHandler

	seen func(*connect.Request[process.StartRequest]) // nil: nobody looks at the requests
}

func (d daemon) Start(ctx context.Context, request *connect.Request[process.StartRequest], stream *connect.ServerStream[process.StartResponse]) error {
	if d.seen != nil {
		d.seen(request)
	}
	for name := range strings.FieldsSeq(request.Msg.GetProcess().GetCmd()) {
		var event process.ProcessEvent
		switch name {
		case "idle":
			event.Event = &process.ProcessEvent_Keepalive{Keepalive: &process.ProcessEvent_KeepAlive{}}
		case "start":
			event.Event = &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: 1}}
		case "stdout":
			event.Event = &process.ProcessEvent_Data{Data: &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stdout{Stdout: []byte("out")}}}
		case "stderr":
			event.Event = &process.ProcessEvent_Data{Data: &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stderr{Stderr: []byte("err")}}}
		case "end":
			event.Event = &process.ProcessEvent_End{End: &process.ProcessEvent_EndEvent{Exited: true}}
		case "failed":
			event.Event = &process.ProcessEvent_End{End: &process.ProcessEvent_EndEvent{Exited: true, ExitCode: 3}}
		case "killed":
			event.Event = &process.ProcessEvent_End{End: &process.ProcessEvent_EndEvent{Error: new("killed")}}
		case "refused":
			return connect.NewError(connect.CodeNotFound, errors.New("no such user"))
		case "late":
			return connect.NewError(connect.CodeDeadlineExceeded, nil)
		case "runs":
			<-ctx.Done()
			return nil
		}
		if err := stream.Send(&process.StartResponse{Event: &event}); err != nil {
			return err
		}
	}
	return nil
}

// TestNothingIsHeld checks that a call for a command returns the outcome of the command, and keeps
// neither a connection nor the caller's context busy.
func TestNothingIsHeld(t *testing.T) {
	t.Parallel()
	_, handler := processconnect.NewProcessHandler(daemon{})
	refusing, failing := io.Pipe()
	must.Do(t, refusing.CloseWithError(io.ErrShortWrite))
	const silent = "it ended without a status"
	for command, want := range map[string]struct{ run, start string }{
		"start end":                {},
		"idle start idle end":      {},
		"start stdout stdout end":  {},
		"start failed":             {"exit status 3", "exit status 3"},
		"start stdout killed":      {"killed", "killed"},
		"refused":                  {"no such user", "no such user"},
		"start refused":            {"no such user", "no such user"},
		"late":                     {context.DeadlineExceeded.Error(), context.DeadlineExceeded.Error()},
		"":                         {silent, "it did not start"},
		"idle":                     {silent, "it did not start"},
		"start":                    {silent, silent},
		"start stderr end":         {io.ErrShortWrite.Error(), io.ErrShortWrite.Error()},
		"start stderr stdout runs": {io.ErrShortWrite.Error(), io.ErrShortWrite.Error()},
		"no text \xff": {
			"marshal message: string field contains invalid UTF-8", "marshal message: string field contains invalid UTF-8",
		},
	} {
		for name, tt := range map[string]struct {
			call func(*Client, context.Context, Command) error
			want string
		}{"run": {(*Client).Run, want.run}, "start": {untilEnd, want.start}} {
			synctest.Test(t, func(t *testing.T) {
				c, h := serve(t, handler)
				ctx := &watched{done: make(chan struct{})}
				var stdout strings.Builder
				err := tt.call(c, ctx, Command{Args: []string{command}, Stdout: &stdout, Stderr: failing})
				said := ""
				if err != nil {
					said = err.Error()
				}
				if said != tt.want {
					t.Errorf("%s %q: got error %q, want %q", name, command, said, tt.want)
				}
				if n := strings.Count(command, "stdout"); tt.want == "" && stdout.String() != strings.Repeat("out", n) {
					t.Errorf("%s %q: got output %q, want that of %d events", name, command, stdout.String(), n)
				}
				synctest.Wait()
				if answers, calls, waiting := h.answers.Load(), h.calls.Load(), ctx.waiting.Load(); answers+calls+waiting != 0 {
					t.Errorf("%s %q holds %d answers, %d calls, and the context %d times", name, command, answers, calls, waiting)
				}
			})
		}
	}
}

// untilEnd starts a command, and waits until it has ended.
func untilEnd(c *Client, ctx context.Context, command Command) error {
	ended, err := c.Start(ctx, command)
	if err != nil {
		return err
	}
	return <-ended
}

// TestStartIsCancelled checks that a call to start a command returns the cause of its context, before
// and after the command has started.
func TestStartIsCancelled(t *testing.T) {
	t.Parallel()
	_, handler := processconnect.NewProcessHandler(daemon{})
	for _, command := range []string{"runs", "start runs"} {
		synctest.Test(t, func(t *testing.T) {
			c, h := serve(t, handler)
			why := errors.New("superseded")
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				synctest.Wait()
				cancel(why)
			}()
			if err := untilEnd(c, ctx, Command{Args: []string{command}}); !errors.Is(err, why) {
				t.Errorf("%q: got %v, want %v", command, err, why)
			}
			synctest.Wait()
			if answers, calls := h.answers.Load(), h.calls.Load(); answers+calls != 0 {
				t.Errorf("%q holds %d answers and %d calls", command, answers, calls)
			}
		})
	}
}

// TestStartRequest checks every part of the request for a command, and that output without a writer
// is dropped.
func TestStartRequest(t *testing.T) {
	t.Parallel()
	var got http.Header
	var message *process.StartRequest
	_, handler := processconnect.NewProcessHandler(daemon{seen: func(r *connect.Request[process.StartRequest]) { got, message = r.Header(), r.Msg }})
	c, _ := serve(t, handler)
	command := Command{Args: []string{"stdout stderr end", "a", "b"}, User: "me", Dir: "/d", Envs: map[string]string{"A": "b"}}
	must.Do(t, c.Run(t.Context(), command))
	want := &process.StartRequest{
		Process: &process.ProcessConfig{Cmd: "stdout stderr end", Args: []string{"a", "b"}, Cwd: new("/d"), Envs: map[string]string{"A": "b"}},
		Stdin:   new(false),
	}
	if diff := cmp.Diff(want, message, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if token, user := got.Get(protocol.HeaderAccess), got.Get("Authorization"); token != "secret" || user != "Basic bWU6" {
		t.Errorf("got token %q and user %q, want secret and me", token, user)
	}
}

// TestRefusedError checks that the error of a refused command has the code and the reason of envd.
func TestRefusedError(t *testing.T) {
	t.Parallel()
	_, handler := processconnect.NewProcessHandler(daemon{})
	c, _ := serve(t, handler)
	refused, _ := errors.AsType[*RefusedError](c.Run(t.Context(), Command{Args: []string{"refused"}}))
	if diff := cmp.Diff(&RefusedError{connect.CodeNotFound, "no such user"}, refused); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestClose checks that a client keeps its connection for later calls until it is closed.
func TestClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pipes := pipetest.Serve(t, http.NotFoundHandler())
		var dialed, open atomic.Int32
		c := New(func(ctx context.Context, _ int) (net.Conn, error) {
			conn, err := pipes.DialContext(ctx, "", "")
			dialed.Add(1)
			open.Add(1)
			return &connection{conn, sync.OnceFunc(func() { open.Add(-1) })}, err
		}, "")
		for range 2 {
			if _, err := c.Busy(t.Context()); err == nil || err.Error() != "404 Not Found" {
				t.Errorf("got %v, want 404 Not Found", err)
			}
		}
		synctest.Wait()
		if dialed, open := dialed.Load(), open.Load(); dialed != 1 || open != 1 {
			t.Errorf("two calls made %d connections, and %d are open, want 1 and 1", dialed, open)
		}
		c.Close()
		synctest.Wait()
		if n := open.Load(); n != 0 {
			t.Errorf("%d connections are open after the client was closed, want none", n)
		}
	})
}

type connection struct {
	net.Conn

	closed func()
}

func (c *connection) Close() error {
	c.closed()
	return c.Conn.Close()
}
