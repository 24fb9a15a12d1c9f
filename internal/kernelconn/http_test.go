package kernelconn

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
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// overHTTP returns the kernels of an interpreter that gives these answers in turn, and
// then always the last one.
func overHTTP(t *testing.T, answers ...http.HandlerFunc) *Kernels {
	t.Helper()
	s := newServer(t)
	var requests atomic.Int64
	s.execute = func(w http.ResponseWriter, r *http.Request) {
		n := min(int(requests.Add(1)), len(answers))
		_, _ = io.Copy(io.Discard, r.Body) // so that the server sees the client go
		answers[n-1](w, r)
	}
	return s.kernels()
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

func answersAll(w http.ResponseWriter, _ *http.Request) { say(w, beginLine, endLine) }

// drops never answers, because the kernel dropped the request.
func drops(w http.ResponseWriter, r *http.Request) {
	say(w, `{"type":"keepalive"}`)
	<-r.Context().Done()
}

func runsOn(w http.ResponseWriter, r *http.Request) {
	say(w, beginLine)
	<-r.Context().Done()
}

// whenBegun runs code and calls do when the interpreter's answer shows that the code
// has begun.
func whenBegun(ctx context.Context, ks *Kernels, do func()) error {
	_, err := ks.ExecuteOverHTTP(ctx, HTTPCall{Code: "x", Line: func(line []byte) error {
		if string(line) == beginLine {
			do()
		}
		return skim(line)
	}})
	return err
}

// giveUp runs code, cancels it once it has begun, and returns the time of the cancel.
func giveUp(t *testing.T, ks *Kernels) (at time.Time) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	if err := whenBegun(ctx, ks, func() { at = time.Now(); cancel() }); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	return at
}

// A request after a cancelled call waits for the interrupt, and is not sent while the
// interpreter drops requests.
func TestRequestAfterOneThatWasGivenUp(t *testing.T) {
	t.Parallel()
	var arrived time.Time
	ks := overHTTP(t, runsOn, func(w http.ResponseWriter, r *http.Request) {
		arrived = time.Now()
		drops(w, r)
	}, answersAll)
	ks.Timings.BeginPatience = 2 * time.Second
	gone := giveUp(t, ks)
	if _, err := ks.ExecuteOverHTTP(t.Context(), HTTPCall{Code: "x"}); err != nil {
		t.Error(err)
	}
	if waited := arrived.Sub(gone); waited < ks.Timings.InterruptOvertake {
		t.Errorf("the next request came after %v, want at least %v", waited, ks.Timings.InterruptOvertake)
	}
	if len(ks.requests) != 0 {
		t.Errorf("%d turns are kept", len(ks.requests))
	}
}

// The error of a cancelled request reports whether the kernel was still starting.
func TestRequestSaysWhetherTheKernelStarts(t *testing.T) {
	t.Parallel()
	silently := func(ks *Kernels) *InterruptedError {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		_, err := ks.ExecuteOverHTTP(ctx, HTTPCall{Code: "x", Line: func([]byte) error { cancel(); return nil }})
		given, ok := errors.AsType[*InterruptedError](err)
		if !ok {
			t.Fatal(err)
		}
		return given
	}
	if given := silently(overHTTP(t, drops)); !given.Starting {
		t.Errorf("a kernel that has sent nothing: got %+v, want it to be starting", given)
	}
	busy := overHTTP(t, answersAll, drops)
	if _, err := busy.ExecuteOverHTTP(t.Context(), HTTPCall{Code: "x"}); err != nil {
		t.Fatal(err)
	}
	if given := silently(busy); given.Starting {
		t.Errorf("a kernel that has run code: got %+v, want other code to keep it busy", given)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := whenBegun(ctx, overHTTP(t, runsOn), cancel)
	if given, ok := errors.AsType[*InterruptedError](err); !ok || given.Starting {
		t.Errorf("code that ran: got %+v, want that the kernel was there", err)
	}
}

func TestRequestsAreNotAwaitedForEver(t *testing.T) {
	t.Parallel()
	ks := overHTTP(t, runsOn, drops)
	ks.Timings.InterruptOvertake, ks.Timings.BeginPatience = time.Millisecond, 20*time.Millisecond
	giveUp(t, ks)
	started, err := ks.ExecuteOverHTTP(t.Context(), HTTPCall{Code: "x"})
	if !errors.Is(err, api.ErrRetryable) || !errors.Is(err, ErrNotSent) || !strings.Contains(err.Error(), "Contexts.Restart") || started {
		t.Errorf("started %v, %v", started, err)
	}
	// Another context is not affected, and the end of the caller's context comes
	// first.
	other := overHTTP(t, runsOn, answersAll)
	giveUp(t, other)
	if _, err := other.ExecuteOverHTTP(t.Context(), HTTPCall{Code: "x", Context: "b0b"}); err != nil {
		t.Error(err)
	}
	other.Timings.InterruptOvertake = time.Hour
	patience.Doubling(t, "the call waits for the interrupt", 100*time.Millisecond, func(d time.Duration) bool {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		started, err = other.ExecuteOverHTTP(ctx, HTTPCall{Code: "x"})
		if !errors.Is(err, context.DeadlineExceeded) || started {
			t.Errorf("started %v, %v, want that it did not, and the deadline", started, err)
		}
		return err == nil || strings.Contains(err.Error(), "being interrupted")
	})
}

// The interpreter has one request at a time, so that it has none to drop.
func TestRequestsTakeTurns(t *testing.T) {
	t.Parallel()
	ks := overHTTP(t, runsOn, answersAll)
	ks.Timings.InterruptOvertake = time.Millisecond
	second := make(chan error, 1)
	first, cancel := context.WithCancel(t.Context())
	err := whenBegun(first, ks, func() {
		waits := make(chan struct{})
		go func() {
			_, err := ks.ExecuteOverHTTP(t.Context(), HTTPCall{Code: "y", Queued: func(int) error { close(waits); return nil }})
			second <- err
		}()
		<-waits
		patience.Doubling(t, "the third call waits for its turn", 100*time.Millisecond, func(d time.Duration) bool {
			third, cancelThird := context.WithTimeout(t.Context(), d)
			defer cancelThird()
			started, err := ks.ExecuteOverHTTP(third, HTTPCall{Code: "z"})
			if !errors.Is(err, context.DeadlineExceeded) || started {
				t.Errorf("started %v, %v, want that it did not, and the deadline", started, err)
			}
			return err == nil || strings.Contains(err.Error(), "other code")
		})
		cancel()
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := <-second; err != nil {
		t.Error(err)
	}
}

func TestLineError(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		name, value, traceback string
		want                   error
		text                   string
	}{
		"restarted":           {"ContextRestarting", "Context was restarted: out of memory", "", ErrDied, ": out of memory"},
		"lost":                {"WebSocketError", "closed", "", ErrLost, ": closed"},
		"ended":               {"UnexpectedEndOfExecution", "", "", ErrLost, ""},
		"exception":           {"ValueError", "x", "", nil, ""},
		"exception like ours": {"WebSocketError", "x", "Traceback", nil, ""},
	} {
		err := LineError(test.name, test.value, test.traceback)
		if !errors.Is(err, test.want) || err != nil && !strings.HasSuffix(err.Error(), test.text) {
			t.Errorf("%s: %v, want %v%s", name, err, test.want, test.text)
		}
	}
}

// A request that leaves the queue before its turn leaves no state behind.
func TestRequestTurnsAreLeft(t *testing.T) {
	t.Parallel()
	ks := newServer(t).kernels()
	holder, err := ks.takeRequestTurn(t.Context(), HTTPCall{})
	must.Do(t, err)
	refused := errors.New("refused")
	ended, end := context.WithCancelCause(t.Context())
	end(refused)
	for name, call := range map[string]struct {
		done   bool // its context has ended
		queued func(int) error
	}{
		"by its function": {false, func(int) error { return refused }},
		"by its context":  {true, nil},
	} {
		ctx := t.Context()
		if call.done {
			ctx = ended
		}
		_, err := ks.takeRequestTurn(ctx, HTTPCall{Queued: call.queued})
		must.Is(t, err, ErrNotSent)
		must.Is(t, err, refused)
		if holder.users != 1 || len(ks.requests) != 1 {
			t.Errorf("given up %s: %d users and %d turns, want one", name, holder.users, len(ks.requests))
		}
	}
	ks.releaseRequestTurn(holder)
	if len(ks.requests) != 0 {
		t.Errorf("%d turns are left", len(ks.requests))
	}
}

// A request that was refused has cut nothing off: nothing is left to settle.
func TestRefusedRequestIsSettled(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.execute = func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusBadRequest) }
	ks := s.kernels()
	if started, err := ks.ExecuteOverHTTP(t.Context(), HTTPCall{}); started || err == nil || len(ks.requests) != 0 {
		t.Errorf("started %v, %v; %d turns are left", started, err, len(ks.requests))
	}
}
