//go:build linux

package e2e

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/sandbox"
)

// When its time is over, code is interrupted and keeps its variables. If it ignores
// the interrupt its kernel is replaced, and the next call reports that.
func TestDeadline(t *testing.T) {
	const setup = "import collections, functools, itertools, os, signal, socket, time\nbegun = functools.partial(os.write, 1, b'begun'); x = 42\n"
	t.Parallel()
	sb := shared(t).Create(t)
	var contexts sync.WaitGroup
	for name, tt := range map[string]struct {
		code string
		deaf bool
	}{
		"a sleep":   {"begun(); time.sleep(1000)", false},
		"a loop":    {"begun()\nwhile True: pass", false},
		"a search":  {"import re; begun(); re.match('(a+)+$', 'a' * 64 + 'b')", false},
		"a number":  {"begun(); 7 ** 10 ** 9", false},
		"a process": {"import subprocess; begun(); subprocess.run(['sleep', '1000'])", false},
		"a command": {"!echo begun; sleep 1000", false},
		"a lock":    {"import threading; l = threading.Lock(); l.acquire(); begun(); l.acquire()", false},
		"an await":  {"import asyncio; begun(); await asyncio.sleep(1000)", false},
		"a repr":    {"class A:\n    def __repr__(self): begun(); time.sleep(1000)\nA()", false},
		// From begun on, these two run no Python code in which an interrupt could be
		// noticed.
		"a loop in C": {"collections.deque(itertools.chain(itertools.starmap(begun, [()]), itertools.repeat(0)), maxlen=0)", true},
		"a sum":       {"sum(itertools.chain(itertools.starmap(begun, [()]), range(10 ** 14)))", true},

		"interrupts ignored":   {"signal.signal(signal.SIGINT, signal.SIG_IGN); begun(); time.sleep(1000)", true},
		"interrupts swallowed": {"while True:\n    try: begun(); time.sleep(1000)\n    except BaseException: pass", true},
		"a process that stops": {"signal.signal(signal.SIGINT, signal.SIG_IGN); begun(); os.kill(os.getpid(), signal.SIGSTOP)", true},
		"an answer to nobody":  {"signal.signal(signal.SIGINT, signal.SIG_IGN); begun(); os.close(3); pair = socket.socketpair()", true},
	} {
		contexts.Go(func() {
			made, err := sb.Contexts.Create(t.Context(), nil)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			in := func(ctx context.Context, code string, begun func()) (*sandbox.Execution, error) {
				return sb.RunCode(ctx, code, &sandbox.RunCodeParams{Context: made.ID, Stdout: whenWritten{begun}})
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			_, err = in(ctx, setup+tt.code, func() { cancel(context.DeadlineExceeded) })
			interrupted, ok := errors.AsType[*sandbox.InterruptedError](err)
			if !ok || !errors.Is(err, context.DeadlineExceeded) || interrupted.Context != made.ID {
				t.Errorf("%s: got %v, want context.DeadlineExceeded in a *sandbox.InterruptedError of context %v", name, err, made.ID)
			}
			if tt.deaf {
				if execution, err := in(t.Context(), "x", nil); !errors.Is(err, sandbox.ErrKernelRestarted) || execution != nil {
					t.Errorf("%s: the next call: %+v, %v, want sandbox.ErrKernelRestarted and no execution", name, execution, err)
				}
			}
			execution, err := in(t.Context(), "globals().get('x')", nil)
			if err != nil || (execution.Text() == "42") == tt.deaf {
				t.Errorf("%s: afterwards x is %q, %v", name, execution.Text(), err)
			}
		})
	}
	contexts.Wait()
}
