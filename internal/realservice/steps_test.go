//go:build linux

package realservice_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/realservice"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
)

// Jupyter's server does not answer pending questions when a cell ends. The SDK
// does, so that a thread waiting for a tool does not block the calls of the
// next step.
func TestToolCallThatOutlivesItsStep(t *testing.T) {
	t.Parallel()
	sb := connect(t, realservice.Start(t))
	type nothing = struct{}
	var made atomic.Int32
	slow := agent.MustTool("slow", "", func(ctx context.Context, _ nothing) (int, error) {
		made.Add(1)
		<-ctx.Done()
		return 0, ctx.Err()
	})
	begun := agent.MustTool("begun", "", func(context.Context, nothing) (bool, error) { return made.Load() == 2, nil })
	r, err := agent.Begin(t.Context(), sb, &agent.Params{Tools: []agent.Tool{slow, begun}})
	must.Do(t, err)
	defer r.Close()
	ctx := patience.Context(t)
	s, err := r.Exec(ctx, `import threading
said = []
def call():
    try:
        slow()
    except Exception as e:
        said.append(f'{type(e).__name__} {e}')
threads = [threading.Thread(target=call) for _ in range(2)]
for thread in threads:
    thread.start()
while not begun():
    pass`)
	if err != nil || s.Error != nil {
		t.Fatalf("got %+v, %v, want no Python error and no error", s, err)
	}
	s, err = r.Exec(ctx, "for thread in threads:\n    thread.join()\nprint(*said, sep='\\n')\nbegun()")
	if err != nil || s.Text() != "True" {
		t.Errorf("got %+v, %v, want text %q and no error", s, err, "True")
	}
	if n := strings.Count(s.Stdout, "ToolError "); n != 2 || made.Load() != 2 {
		t.Errorf("%d of %d calls failed, want 2 of 2: %q", n, made.Load(), s.Stdout)
	}
}

// The error of a step that took too long shows where it hung. If its code does
// not stop, the next step gets another kernel.
func TestStepTimeout(t *testing.T) {
	t.Parallel()
	sb := connect(t, realservice.Start(t))
	waits := agent.MustTool("waits", "", func(ctx context.Context, _ struct{}) (int, error) { <-ctx.Done(); return 0, ctx.Err() })
	_, err := sb.RunCode(t.Context(), "kept = 42\n1/0", nil) // the first traceback takes a while
	if _, raised := errors.AsType[*sandbox.ExecutionError](err); !raised {
		t.Fatalf("got %v, want raised", err)
	}
	r, err := agent.Begin(t.Context(), sb, &agent.Params{Tools: []agent.Tool{waits}, Limits: agent.Limits{StepTimeout: 5 * time.Second}})
	must.Do(t, err)
	defer r.Close()
	for _, code := range []string{"import time\ntime.sleep(600)", "pass\nwaits()", "pass\nwhile True: pass"} {
		_, where, _ := strings.Cut(code, "\n")
		s, err := r.Exec(t.Context(), code)
		if !errors.Is(err, agent.ErrStepTimeout) || s == nil || s.Error == nil {
			t.Fatalf("%s: got %+v, %v, want agent.ErrStepTimeout and a Python error", code, s, err)
		}
		if e := s.Error; e.Name != "KeyboardInterrupt" || e.Line != 2 || !strings.Contains(s.Observation(), where) {
			t.Errorf("%s: got %+v, want %s in line 2, and %q for the model", code, e, "KeyboardInterrupt", where)
		}
		if s, err := r.Exec(t.Context(), "kept"); err != nil || s.Text() != "42" || s.Restarted {
			t.Errorf("after %s: %+v, %v", code, s, err)
		}
	}
	s, err := r.Exec(t.Context(), "import collections, itertools, signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ncollections.deque(itertools.repeat(0), maxlen=0)")
	must.Is(t, err, agent.ErrStepTimeout)
	if s == nil || s.Error == nil || s.Error.Name != "TimeoutError" {
		t.Fatalf("got %+v, want a step with a TimeoutError", s)
	}
	if s, err := r.Exec(t.Context(), "'kept' in globals()"); err != nil || s.Text() != "False" || !s.Restarted {
		t.Errorf("the next step: %+v, %v, want text %q, restarted and no error", s, err, "False")
	}
}
