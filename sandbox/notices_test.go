package sandbox

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestNothingToDo checks that calls without work send nothing.
func TestNothingToDo(t *testing.T) {
	t.Parallel()
	s := newService(t)
	sb := s.sandbox()
	before := s.seen("")
	s.start = func(_ context.Context, r *process.StartRequest, stream *connect.ServerStream[process.StartResponse]) error {
		t.Errorf("started %v", r.GetProcess())
		return endedWith(stream, 1)
	}
	none := &place{sb: sb, run: func(context.Context, string, []string, time.Duration) (string, error) {
		t.Error("a script ran")
		return "", nil
	}}
	for what, do := range map[string]func() error{
		"verify": func() error {
			failures, err := none.verify(t.Context(), nil)
			if len(failures) > 0 {
				t.Errorf("got the failures %v", failures)
			}
			return err
		},
		"wheels": func() error {
			return sb.Packages.installWheels(t.Context(), none, &LockFile{}, func() (*pipRun, error) { return nil, errors.New("pip was prepared") })
		},
		"metadata": func() error { return sb.Files.setMetadata(http.Header{}, nil) },
		"loaded": func() error {
			if names := sb.Packages.loaded(t.Context(), none, []string{"a"}); names != nil {
				t.Errorf("without a context, %v are loaded", names)
			}
			return nil
		},
	} {
		if err := do(); err != nil || s.seen("") != before {
			t.Errorf("%s: got error %v and the calls %q", what, err, s.calls)
		}
	}
	for what, err := range map[string]error{
		"Restore": sb.Git.Restore(t.Context(), "r", nil, nil), "Reap": second(s.client().Reap(t.Context(), nil)), "Reap without labels": second(s.client().Reap(t.Context(), &ReapParams{})),
	} {
		if err == nil || s.seen("") != before {
			t.Errorf("%s of nothing: got error %v and the calls %q", what, err, s.calls)
		}
	}
}

// TestGetOrCreateCannotLook checks that nothing is created if the service does not list its sandboxes.
func TestGetOrCreateCannotLook(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.control = func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}
	_, err := s.client().GetOrCreate(t.Context(), "n")
	if err == nil || !strings.HasPrefix(err.Error(), `sandbox: look for "n": `) || s.seen("POST") > 0 {
		t.Errorf("got error %v and the calls %q", err, s.calls)
	}
}

// TestResumeIsNoticed checks that Resume lets waiting calls continue, and that the handle knows the new end of the sandbox.
func TestResumeIsNoticed(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for lifetime, want := range map[time.Duration]time.Duration{0: time.Minute, time.Hour: time.Hour} {
		sb := newService(t).sandbox(WithExpiry(Expiry{After: time.Minute}))
		for name, paused := range map[string]func(){"paused": func() { sb.asleep.begin()(true) }, "being paused": func() { sb.asleep.begin() }} {
			paused()
			runs := sb.asleep.awake()
			begun := time.Now()
			must.Do(t, sb.Resume(t.Context(), &ResumeParams{Lifetime: lifetime}))
			if sb.asleep.wait(ended) || sb.asleep.pausedHere() {
				t.Errorf("%s: a call still waits", name)
			}
			select {
			case <-runs:
			default:
				t.Errorf("%s: nobody is told that the sandbox runs", name)
			}
			if end := sb.end(); end.Before(begun.Add(want)) || end.After(time.Now().Add(want)) {
				t.Errorf("%s: the sandbox ends in %v, want %v", name, end.Sub(begun), want)
			}
		}
	}
}

// countedConn counts how often a connection is closed.
type countedConn struct {
	net.Conn
	closed atomic.Int32
}

func (c *countedConn) Close() error {
	c.closed.Add(1)
	return c.Conn.Close()
}

// TestForwardingForgetsItsConnections checks that a connection that has ended is not kept until the forwarding ends.
func TestForwardingForgetsItsConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newPipedService(t)
		s.start = func(_ context.Context, _ *process.StartRequest, stream *connect.ServerStream[process.StartResponse]) error {
			_ = started(stream, 1)
			_ = stdout(stream, []byte("+"))
			return endedWith(stream, 0)
		}
		s.input = func(*process.SendInputRequest) {}
		sb := s.sandbox()
		life, end := context.WithCancel(t.Context())
		far, client := net.Pipe()
		defer client.Close()
		near := &countedConn{Conn: far}
		f := &Forwarding{sb: sb, port: 5432, life: life, end: end}
		f.serve(near)
		before := near.closed.Load()
		end()
		synctest.Wait()
		if after := near.closed.Load(); before == 0 || after != before {
			t.Errorf("closed %d times, and %d times at the end of the forwarding", before, after)
		}
		must.Do(t, sb.Close())
	})
}
