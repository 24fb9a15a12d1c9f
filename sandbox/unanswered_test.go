package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// TestUnansweredStarts checks for how long a start and a connection wait for the daemon, and their errors.
func TestUnansweredStarts(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		starts bool // the daemon reports the start, and then nothing
		do     func(context.Context, *Sandbox) error
		want   string
	}{
		"a command":    {false, func(ctx context.Context, sb *Sandbox) error { return second(sb.Commands.Start(ctx, "x", nil)) }, "the daemon did not answer"},
		"a connection": {true, func(ctx context.Context, sb *Sandbox) error { return second(sb.Dial(ctx, 5432)) }, "no connection was made"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newPipedService(t)
			s.start = func(ctx context.Context, _ *process.StartRequest, stream *startStream) error {
				if tt.starts {
					_ = started(stream, 7)
				}
				<-ctx.Done()
				return ctx.Err()
			}
			sb, begun := s.sandbox(), time.Now()
			err := tt.do(t.Context(), sb)
			if took := time.Since(begun); took != startTimeout || err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: got error %v after %v, want one with %q after %v", name, err, took, tt.want, startTimeout)
			}
			must.Do(t, sb.Close())
		})
	}
}

// TestClosedWhileUnanswered checks that the end of a handle ends a call to which nothing was answered yet.
func TestClosedWhileUnanswered(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(context.Context, *Sandbox) error{
		"Dial": func(ctx context.Context, sb *Sandbox) error { return second(sb.Dial(ctx, 5432)) },
		"Logs": func(ctx context.Context, sb *Sandbox) error {
			_, err := listed(sb.Logs(ctx, nil))
			return err
		},
	} {
		s, asked := newService(t), make(chan struct{})
		s.start = func(ctx context.Context, _ *process.StartRequest, stream *startStream) error {
			_ = started(stream, 7)
			close(asked)
			<-ctx.Done()
			return ctx.Err()
		}
		s.control = func(_ http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/logs") {
				close(asked)
				<-r.Context().Done()
			}
		}
		sb := s.sandbox()
		failed := make(chan error, 1)
		go func() { failed <- do(t.Context(), sb) }()
		patience.Receive(t, name+" has begun", asked)
		must.Do(t, sb.Close())
		if err := patience.Receive(t, "the end of "+name, failed); !errors.Is(err, ErrClosed) {
			t.Errorf("%s: got error %v, want %v", name, err, ErrClosed)
		}
	}
}

// firstName returns a function that returns the name which the first start of a process gave to its output.
func firstName(s *service) func() string {
	var mu sync.Mutex
	name := ""
	s.raw = func(_ http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		name = cmp.Or(name, r.Header.Get(protocol.HeaderOutputOf))
		return false
	}
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return name
	}
}

// TestStartWithoutAnswer checks that a process whose start was cut off is found by the name that its start
// gave it, and that an error is the one of the start.
func TestStartWithoutAnswer(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(context.Context, *process.ConnectRequest, *connectStream) error{
		"it runs": goesOn(7, outEvent("text"), endEvent(3)), "it does not run": absent,
	} {
		s := newService(t)
		named := firstName(s)
		s.start = func(context.Context, *process.StartRequest, *startStream) error { return nil }
		asked := ""
		s.connect = func(ctx context.Context, r *process.ConnectRequest, stream *connectStream) error {
			asked = r.GetProcess().GetTag()
			return connect(ctx, r, stream)
		}
		result, err := s.sandbox().Commands.Run(t.Context(), "work", nil)
		if want := named(); asked == "" || asked != want {
			t.Errorf("%s: asked for the process %q, want %q", name, asked, want)
		}
		if name != "it runs" {
			must.Is(t, err, ErrCommandLost)
			continue
		}
		if failed, ok := errors.AsType[*ExitError](err); !ok || failed.Result.ExitCode != 3 || result.Stdout != "text" {
			t.Errorf("%s: got %+v and error %v", name, result, err)
		}
	}
}

// TestDaemonThatForgets checks that a command is lost if its daemon, which kept the output, was replaced by one that
// keeps none.
func TestDaemonThatForgets(t *testing.T) {
	t.Parallel()
	s := newService(t)
	named := firstName(s)
	s.start = func(_ context.Context, _ *process.StartRequest, stream *startStream) error {
		stream.ResponseHeader().Set(protocol.HeaderOutputFrom, "0")
		stream.ResponseHeader().Set(protocol.HeaderOutputOf, named())
		return started(stream, 7)
	}
	s.connect = goesOn(7, endEvent(0))
	_, err := s.sandbox().Commands.Run(t.Context(), "work", nil)
	if !errors.Is(err, ErrCommandLost) || !errors.Is(err, errForgets) {
		t.Errorf("got error %v, want %v and %v", err, ErrCommandLost, errForgets)
	}
}

// TestSourceOfAVolumeFails checks that a write ends with the error of its reader, as it is.
func TestSourceOfAVolumeFails(t *testing.T) {
	t.Parallel()
	mine := errors.New("mine")
	for name, r := range map[string]io.Reader{"at once": iotest.ErrReader(mine), "later": io.MultiReader(strings.NewReader("text"), iotest.ErrReader(mine))} {
		err := listing{}.open(t).WriteFrom(t.Context(), "f", r, nil)
		if want := "write data:f: mine"; !errors.Is(err, mine) || err.Error() != want {
			t.Errorf("%s: got error %v, want %s", name, err, want)
		}
	}
}

// TestListenerFails checks that a connection which cannot be accepted is reported, and that the forwarding goes on.
func TestListenerFails(t *testing.T) {
	t.Parallel()
	failed := make(chan error, 10)
	sb := newService(t).sandbox()
	f, err := sb.Forward(t.Context(), "127.0.0.1:0", 5432, &ForwardParams{MaxConnections: 1, Failed: func(err error) {
		select {
		case failed <- err:
		default:
		}
	}})
	must.Do(t, err)
	must.Do(t, f.listener.Close())
	want := fmt.Sprintf("sandbox: forward port 5432 of %s: a connection was not accepted: ", testID)
	for range 2 {
		if err := patience.Receive(t, "a failure", failed); !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got the failure %v, want one that begins with %s", err, want)
		}
	}
	must.Do(t, f.Close())
}

// TestHashMismatch checks that the error for a file with another hash names the package and the hash.
func TestHashMismatch(t *testing.T) {
	t.Parallel()
	const begin = "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. ...\n"
	for stderr, want := range map[string]string{
		begin + "    humanize==4.9.0 from https://h/x.whl:\n        Expected sha256 aaaa\n        or       bbbb\n             Got        cccc\n": "what the index gives is not what the lock has: humanize==4.9.0 has the hash cccc",
		begin: "what the index gives is not what the lock has",
	} {
		e := newInstallError([]string{"humanize"}, &CommandResult{ExitCode: 1, Stderr: stderr}, "", strings.NewReplacer(), false)
		if got := "sandbox: install humanize: pip ended with status 1: " + want; !e.HashMismatch || e.Error() != got {
			t.Errorf("got the error %s, want %s", e, got)
		}
	}
}

// TestPortOfKernelsIsClosed checks that a question to a kernel without a websocket says that it needs one.
func TestPortOfKernelsIsClosed(t *testing.T) {
	t.Parallel()
	_, err := newService(t).sandbox().Contexts.Check(t.Context(), "x", nil)
	if !errors.Is(err, ErrNeedsWebsocket) || !errors.Is(err, ErrPortClosed) {
		t.Errorf("got error %v, want %v and %v", err, ErrNeedsWebsocket, ErrPortClosed)
	}
}
