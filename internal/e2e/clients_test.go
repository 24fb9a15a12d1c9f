//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/relaytest"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// forBothHandles runs a test with two handles on one sandbox, like those of two
// programs, on each transport.
func forBothHandles(t *testing.T, test func(t *testing.T, sb, other *sandbox.Sandbox)) {
	t.Parallel()
	cloud := shared(t)
	for _, transport := range transports {
		t.Run(string(transport), func(t *testing.T) {
			sb := cloud.Create(t, sandbox.WithCodeTransport(transport))
			other, err := sandbox.Connect(t.Context(), sb.ID(), cloud.Option(), sandbox.WithCodeTransport(transport))
			must.Do(t, err)
			t.Cleanup(func() { other.Close() })
			test(t, sb, other)
		})
	}
}

const untilTold = "import os\nwhile not os.path.exists('/tmp/go'): pass"

// Code of several clients runs one after the other, each client receives only
// its own output, and a client that waits is told how many are ahead of it.
func TestClientsOfOneKernel(t *testing.T) {
	forBothHandles(t, func(t *testing.T, sb, other *sandbox.Sandbox) {
		sandboxtest.Eval(t, sb, "ran = []")
		begun := make(chan struct{})
		var calls sync.WaitGroup
		calls.Go(func() {
			execution, err := sb.RunCode(t.Context(), "print('mine', flush=True)\n"+untilTold+"\nran.append(1)", &sandbox.RunCodeParams{Stdout: whenWritten{func() { close(begun) }}})
			if err != nil || execution.Stdout != "mine\n" {
				t.Errorf("got %+v %v, want stdout %q and no error", execution, err, "mine\n")
			}
		})
		<-begun
		waits := make(chan int, 100)
		calls.Go(func() {
			for event, err := range other.StreamCode(t.Context(), "print('theirs'); ran.append(2)", nil) {
				if err != nil {
					t.Error(err)
				}
				switch e := event.(type) {
				case sandbox.StatusEvent:
					if e.State == sandbox.CodeQueued {
						waits <- e.Position
					}
				case sandbox.EndEvent:
					if e.Execution.Stdout != "theirs\n" {
						t.Errorf("got %+v, want stdout %q", e.Execution, "theirs\n")
					}
				}
			}
		})
		if position := <-waits; position != 1 {
			t.Errorf("told the position %d, want 1", position)
		}
		sandboxtest.Run(t, sb, "touch /tmp/go")
		calls.Wait()
		if got := sandboxtest.Eval(t, sb, "str(ran)"); got != "[1, 2]" {
			t.Errorf("ran in the order %s, want %s", got, "[1, 2]")
		}
	})
}

// If another client ends a context, the client that runs code in it gets an
// error that says so, and the next call works if the context can still be used.
func TestContextEndedByAnotherClient(t *testing.T) {
	forBothHandles(t, func(t *testing.T, sb, other *sandbox.Sandbox) {
		for name, test := range map[string]struct {
			end   func(id sandbox.ContextID) error
			told  []error
			after error
		}{
			"restart": {func(id sandbox.ContextID) error { return other.Contexts.Restart(t.Context(), id) }, []error{sandbox.ErrKernelDied, sandbox.ErrKernelLost}, nil},
			"remove":  {func(id sandbox.ContextID) error { return other.Contexts.Remove(t.Context(), id) }, []error{sandbox.ErrKernelDied, sandbox.ErrKernelLost}, errAny},
		} {
			made, err := sb.Contexts.Create(t.Context(), nil)
			must.Do(t, err)
			in := &sandbox.RunCodeParams{Context: made.ID}
			ended := make(chan error, 1)
			hanging := *in
			hanging.Stdout = whenWritten{func() { go func() { ended <- test.end(made.ID) }() }}
			execution, err := sb.RunCode(t.Context(), "print('begun', flush=True)\nwhile True: pass", &hanging)
			if !isOneOf(err, test.told) || execution == nil || execution.Stdout != "begun\n" {
				t.Errorf("%s: got %+v, %v, want one of %v and stdout %q", name, execution, err, test.told, "begun\n")
			}
			if err := <-ended; err != nil {
				t.Errorf("%s: %v", name, err)
			}
			_, err = sb.RunCode(t.Context(), "1", in)
			if errors.Is(err, sandbox.ErrKernelRestarted) { // reported once
				_, err = sb.RunCode(t.Context(), "1", in)
			}
			if (err == nil) != (test.after == nil) {
				t.Errorf("after %s: %v, want %v", name, err, test.after)
			}
		}
		if got := sandboxtest.Eval(t, sb, "6 * 7"); got != "42" {
			t.Errorf("another context: %q, want %q", got, "42")
		}
		_, err := sb.RunCode(t.Context(), "print('begun', flush=True)\nwhile True: pass", &sandbox.RunCodeParams{
			Stdout: whenWritten{func() { go func() { _ = other.Kill(context.WithoutCancel(t.Context())) }() }},
		})
		if !errors.Is(err, sandbox.ErrGone) {
			t.Errorf("killed: %v, want sandbox.ErrGone", err)
		}
	})
}

var errAny = errors.New("any error")

func isOneOf(err error, all []error) bool {
	for _, one := range all {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}

// TestGivenUpAtAnyTime checks that the code of a call that is cancelled at any time does
// not continue, and that the next call works.
func TestGivenUpAtAnyTime(t *testing.T) {
	onBothTransports(t, func(t *testing.T, sb *sandbox.Sandbox) {
		sandboxtest.Eval(t, sb, "x = 41")
		for i := range 40 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*100*time.Microsecond)
			_, err := sb.RunCode(ctx, "while True: pass", nil)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%d: got %v, want context.DeadlineExceeded", i, err)
			}
			if got := sandboxtest.Eval(t, sb, "x + 1"); got != "42" {
				t.Fatalf("%d: got %s, want %s", i, got, "42")
			}
		}
	})
}

// A question that is asked while the connection is cut is still answered, and
// only once.
func TestQuestionsWhileTheConnectionIsCut(t *testing.T) {
	t.Parallel()
	cloud := shared(t)
	r := relaytest.New(t, cloud.URL())
	sb := cloud.Create(t, sandbox.WithSandboxURL(r.URL()))
	sandboxtest.Eval(t, sb, "1")
	asked := 0
	answer := func(_ context.Context, prompt string, _ bool) (string, error) {
		asked++
		if asked%3 == 0 {
			r.Cut()
		}
		return prompt, nil
	}
	execution, err := sb.RunCode(t.Context(), "' '.join(input(i) for i in range(9))", &sandbox.RunCodeParams{Stdin: answer})
	if want := "0 1 2 3 4 5 6 7 8"; err != nil || execution.Text() != want {
		t.Errorf("got %q, %v, want %q and no error", execution.Text(), err, want)
	}
	if asked != 9 {
		t.Errorf("%d questions were asked, want 9", asked)
	}
	if got := fmt.Sprint(sandboxtest.Eval(t, sb, "6 * 7")); got != "42" {
		t.Errorf("got %q, want %q", got, "42")
	}
}
