package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/clienttest"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

type startStream = connect.ServerStream[process.StartResponse]

func TestRun(t *testing.T) {
	t.Parallel()
	s := newService(t)
	var got *process.StartRequest
	s.start = func(_ context.Context, r *process.StartRequest, stream *startStream) error {
		got = r
		_ = started(stream, 42)
		for _, part := range []string{"h\xc3", "\xa9llo\n", ""} { // a character in two parts
			_ = stdout(stream, []byte(part))
		}
		_ = stderr(stream, []byte("oops\n"))
		return ended(stream, 3, "exit status 3")
	}
	sb := s.sandbox()
	var out, errs bytes.Buffer
	result, err := sb.Commands.Run(t.Context(), "x | y", &CommandParams{User: "root", Cwd: "/w", Envs: map[string]string{"A": "b"}, Stdout: &out, Stderr: &errs})
	failed, ok := errors.AsType[*ExitError](err)
	if !ok || failed.Result != result || err.Error() != "command failed: exit status 3: oops" {
		t.Fatalf("error = %v", err)
	}
	want := &CommandResult{ExitCode: 3, Status: "exit status 3", Stdout: "héllo\n", Stderr: "oops\n"}
	if diff := cmp.Diff(want, result); diff != "" {
		t.Error(diff)
	}
	if out.String() != want.Stdout || errs.String() != want.Stderr {
		t.Errorf("writers got %q and %q", out.String(), errs.String())
	}
	sent := &process.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-l", "-c", "x | y"}, Cwd: new("/w"), Envs: map[string]string{"A": "b"}}
	if diff := cmp.Diff(sent, got.GetProcess(), protocmp.Transform()); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
	if got.Stdin == nil || *got.Stdin {
		t.Errorf("sent %v, want stdin off", got)
	}
	if user, _, _ := (&http.Request{Header: s.headers}).BasicAuth(); user != "root" {
		t.Errorf("user = %q", user)
	}
	if s.headers.Get("Content-Type") != "application/connect+proto" {
		t.Errorf("codec: %s", s.headers.Get("Content-Type"))
	}
	if asked := s.headers.Get("Connect-Accept-Encoding"); asked != "" {
		t.Errorf("the daemon may pack messages: %s", asked)
	}
}

func TestRunStdin(t *testing.T) {
	t.Parallel()
	s := newService(t)
	input := strings.Repeat("0123456789", 10_000)
	var mu sync.Mutex
	var got bytes.Buffer
	s.input = func(r *process.SendInputRequest) {
		mu.Lock()
		defer mu.Unlock()
		got.Write(r.GetInput().GetStdin())
	}
	s.start = func(_ context.Context, r *process.StartRequest, stream *startStream) error {
		_ = started(stream, 1)
		patience.Until(t, "stdin is closed", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.closed == 1 })
		return ended(stream, 0, "exit status 0")
	}
	sb := s.sandbox()
	if _, err := sb.Commands.Run(t.Context(), "cat", &CommandParams{Stdin: iotest.HalfReader(strings.NewReader(input))}); err != nil {
		t.Fatal(err)
	}
	if got.String() != input {
		t.Errorf("%d bytes of %d arrived", got.Len(), len(input))
	}
	s.mu.Lock()
	s.closed = 0
	s.mu.Unlock()
	mine := errors.New("mine")
	if _, err := sb.Commands.Run(t.Context(), "cat", &CommandParams{Stdin: iotest.ErrReader(mine)}); !errors.Is(err, mine) {
		t.Errorf("a reader that fails: %v", err)
	}
	// Input that never arrives does not keep a command from ending.
	s.start = func(_ context.Context, _ *process.StartRequest, stream *startStream) error {
		_ = started(stream, 1)
		return ended(stream, 0, "exit status 0")
	}
	r, w := io.Pipe()
	defer w.Close()
	if _, err := sb.Commands.Run(t.Context(), "true", &CommandParams{Stdin: r}); err != nil {
		t.Error(err)
	}
}

func TestRunCancelled(t *testing.T) {
	t.Parallel()
	for name, early := range map[string]bool{"running": false, "before it started": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			asked := make(chan struct{})
			release := make(chan struct{})
			s.start = func(ctx context.Context, _ *process.StartRequest, stream *startStream) error {
				if early {
					close(asked)
					<-release
				}
				_ = started(stream, 42)
				_ = stdout(stream, []byte("so far\n"))
				if !early {
					close(asked)
				}
				<-ctx.Done()
				return ctx.Err()
			}
			sb := s.sandbox()
			ctx, cancel := context.WithCancel(t.Context())
			out := writerFunc(func(p []byte) (int, error) {
				cancel()
				return len(p), nil
			})
			if early {
				go func() { <-asked; cancel() }()
			}
			result, err := sb.Commands.Run(ctx, "sleep 1000", &CommandParams{Stdout: out})
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if !early && (result == nil || result.Stdout != "so far\n") {
				t.Errorf("what came is lost: %+v", result)
			}
			close(release)
			patience.Until(t, "the command is killed", func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return len(s.signals) == 1 && s.signals[0] == 42
			})
		})
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestRunDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const timeout = time.Minute
		s := newPipedService(t)
		var told time.Duration
		s.start = func(ctx context.Context, _ *process.StartRequest, stream *startStream) error {
			told = left(ctx)
			_ = started(stream, 42)
			<-ctx.Done()
			return ctx.Err()
		}
		sb := s.sandbox()
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		if _, err := sb.Commands.Run(ctx, "sleep 1000", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want that the deadline passed", err)
		}
		if want := timeout + killGrace; told != want {
			t.Errorf("the daemon was told %v, want %v", told, want)
		}
	})
}

// cutTransport ends the body of Start's answer after a number of bytes.
type cutTransport struct {
	http.RoundTripper
	after int64
	calls atomic.Int32
}

func (c *cutTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := c.RoundTripper.RoundTrip(r)
	if err == nil && strings.HasSuffix(r.URL.Path, "/Start") {
		c.calls.Add(1)
		response.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(io.LimitReader(response.Body, c.after), iotest.ErrReader(io.ErrUnexpectedEOF)), response.Body}
	}
	return response, err
}

func TestRunCutAnywhereStartsOnce(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start = func(_ context.Context, _ *process.StartRequest, stream *startStream) error {
		_ = started(stream, 42)
		_ = stdout(stream, []byte("out"))
		return ended(stream, 0, "exit status 0")
	}
	// The whole answer is three messages and the end of the stream; the last cut
	// comes after the command's end is known.
	connections := clienttest.New(t).Transport
	for cut := int64(0); cut < 40; cut++ {
		transport := &cutTransport{RoundTripper: connections, after: cut}
		c := s.client(WithTransport(transport))
		sb, err := c.Create(t.Context())
		must.Do(t, err)
		result, err := sb.Commands.Run(t.Context(), "x", nil)
		switch {
		case err != nil && !errors.Is(err, ErrCommandLost) && !errors.Is(err, api.ErrUnavailable):
			t.Errorf("cut after %d bytes: %v", cut, err)
		case err == nil && (result.ExitCode != 0 || result.Stdout != "out"):
			t.Errorf("cut after %d bytes: no error, and %+v", cut, result)
		}
		if n := transport.calls.Load(); n != 1 {
			t.Errorf("cut after %d bytes: started %d times", cut, n)
		}
		sb.Detach()
	}
}

func TestRunErrorsOfTheDaemon(t *testing.T) {
	t.Parallel()
	s := newService(t)
	for code, want := range map[connect.Code]error{
		connect.CodeInvalidArgument: api.ErrInvalidArgument, connect.CodeUnauthenticated: api.ErrUnauthorized,
		connect.CodeResourceExhausted: api.ErrRateLimited, connect.CodeUnavailable: api.ErrUnavailable, connect.CodeDeadlineExceeded: api.ErrTimeout,
	} {
		s.start = func(context.Context, *process.StartRequest, *startStream) error {
			return connect.NewError(code, errors.New("cwd '/x' does not exist"))
		}
		sb := s.sandbox()
		result, err := sb.Commands.Run(t.Context(), "x", nil)
		if !errors.Is(err, want) || !strings.Contains(err.Error(), "does not exist") || result != nil {
			t.Errorf("%v: %v", code, err)
		}
		sb.Detach()
	}
}

func TestRunWriterThatFails(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start = func(ctx context.Context, _ *process.StartRequest, stream *startStream) error {
		_ = started(stream, 42)
		for stdout(stream, make([]byte, 1000)) == nil && ctx.Err() == nil {
		}
		return ctx.Err()
	}
	sb := s.sandbox()
	mine := errors.New("mine")
	if _, err := sb.Commands.Run(t.Context(), "yes", &CommandParams{Stdout: writerFunc(func([]byte) (int, error) { return 0, mine })}); !errors.Is(err, mine) {
		t.Errorf("%v", err)
	}
	patience.Until(t, "the command is killed", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.signals) == 1 })
}

func TestRunManyAtOnce(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start = func(_ context.Context, r *process.StartRequest, stream *startStream) error {
		_ = started(stream, 1)
		_ = stdout(stream, []byte(r.GetProcess().GetArgs()[2]))
		return ended(stream, 0, "")
	}
	sb := s.sandbox()
	var running sync.WaitGroup
	for i := range 1500 {
		running.Go(func() {
			want := fmt.Sprint(i)
			if result, err := sb.Commands.Run(t.Context(), want, nil); err != nil || result.Stdout != want {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	running.Wait()
}

func TestOlderThan(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{"0.5.1": true, "0.5.2": false, "0.6.13": false, "1.0.0": false, "0.4.9": true, "": false, "dev": false} {
		if got := olderThan(version, 0, 5, 2); got != want {
			t.Errorf("%q: %v", version, got)
		}
	}
}
