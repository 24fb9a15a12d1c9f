package sandbox

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
)

// overHTTP returns a sandbox whose interpreter answers with these in turn, and
// then always with the last.
func overHTTP(t *testing.T, answers ...http.HandlerFunc) *Sandbox {
	t.Helper()
	s := newService(t)
	var requests atomic.Int64
	s.execute = func(w http.ResponseWriter, r *http.Request) {
		n := min(int(requests.Add(1)), len(answers))
		_, _ = io.Copy(io.Discard, r.Body) // so that the server sees the client go
		answers[n-1](w, r)
	}
	return s.sandbox(WithCodeTransport(CodeTransportHTTP))
}

func say(w http.ResponseWriter, lines ...string) {
	for _, line := range lines {
		_, _ = io.WriteString(w, line+"\n") // the client may be gone
	}
	_ = http.NewResponseController(w).Flush()
}

const (
	beginLine = `{"type":"number_of_executions","execution_count":1}`
	endLine   = `{"type":"end_of_execution"}`
)

func answersAll(w http.ResponseWriter, _ *http.Request) {
	say(w, beginLine, `{"type":"result","text":"42","extra":{},"is_main_result":true}`, endLine)
}

// drops never answers: the kernel dropped what it received.
func drops(w http.ResponseWriter, r *http.Request) {
	say(w, `{"type":"keepalive"}`)
	<-r.Context().Done()
}

// giveUp calls RunCode and gives it up when the interpreter's answer says that
// its code has begun.
func giveUp(t *testing.T, sb *Sandbox) {
	t.Helper()
	for event, err := range sb.StreamCode(t.Context(), "x", nil) {
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := event.(StatusEvent); ok && e.State == CodeBusy {
			return
		}
	}
	t.Fatal("the code did not begin")
}

func runsOn(w http.ResponseWriter, r *http.Request) {
	say(w, beginLine)
	<-r.Context().Done()
}

// A request after a call that was given up waits for the interrupt, and is not
// sent while the interpreter drops what it receives.
func TestRequestAfterOneThatWasGivenUp(t *testing.T) {
	t.Parallel()
	var arrived time.Time
	sb := overHTTP(t, runsOn, func(w http.ResponseWriter, r *http.Request) {
		arrived = time.Now()
		drops(w, r)
	}, answersAll)
	sb.code.begin = 2 * time.Second
	giveUp(t, sb)
	gone := time.Now()
	ex, err := sb.RunCode(t.Context(), "x", nil)
	if err != nil || ex.Text() != "42" {
		t.Errorf("%+v, %v", ex, err)
	}
	// The cut was recorded before the call returned.
	if waited := arrived.Sub(gone); waited < interruptOvertake*9/10 {
		t.Errorf("the next request came after %v", waited)
	}
	if len(sb.code.requests) != 0 {
		t.Errorf("%d turns are kept", len(sb.code.requests))
	}
}

func TestRequestsAreNotAwaitedForEver(t *testing.T) {
	t.Parallel()
	sb := overHTTP(t, runsOn, drops)
	sb.code.overtake, sb.code.begin = time.Millisecond, 20*time.Millisecond
	giveUp(t, sb)
	ex, err := sb.RunCode(t.Context(), "x", nil)
	if !errors.Is(err, api.ErrRetryable) || !errors.Is(err, kernelconn.ErrNotSent) || !strings.Contains(err.Error(), "Contexts.Restart") || ex != nil {
		t.Errorf("%+v, %v", ex, err)
	}
	// Another context is not affected, and the end of the caller's context comes
	// first.
	other := overHTTP(t, runsOn, answersAll)
	giveUp(t, other)
	if ex, err := other.RunCode(t.Context(), "x", &RunCodeParams{Context: "b0b"}); err != nil || ex.Text() != "42" {
		t.Errorf("%+v, %v", ex, err)
	}
	other.code.overtake = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if ex, err := other.RunCode(ctx, "x", nil); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "being interrupted") || ex != nil {
		t.Errorf("%+v, %v", ex, err)
	}
}

// The interpreter has one request at a time, so that there is none for it to
// drop.
func TestRequestsTakeTurns(t *testing.T) {
	t.Parallel()
	sb := overHTTP(t, runsOn, answersAll)
	sb.code.overtake = time.Millisecond
	second := make(chan error, 1)
	for event, err := range sb.StreamCode(t.Context(), "x", nil) {
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := event.(StatusEvent); !ok || e.State != CodeBusy {
			continue
		}
		waits := make(chan struct{})
		go func() {
			var end error
			for event, err := range sb.StreamCode(t.Context(), "y", nil) {
				if e, ok := event.(StatusEvent); ok && e.State == CodeQueued {
					close(waits)
				}
				end = err
			}
			second <- end
		}()
		<-waits
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if ex, err := sb.RunCode(ctx, "z", nil); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "other code") || ex != nil {
			t.Errorf("%+v, %v", ex, err)
		}
		cancel()
		break
	}
	if err := <-second; err != nil {
		t.Error(err)
	}
}
