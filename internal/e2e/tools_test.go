//go:build linux

package e2e

import (
	"context"
	"errors"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

func observe(t *testing.T, r *agent.Run, code string) *agent.Step {
	t.Helper()
	step, err := r.Exec(t.Context(), code)
	must.Do(t, err)
	return step
}

func TestToolsInASandbox(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	entered := make(chan struct{}, 1)
	tools := []agent.Tool{
		agent.MustTool("add", "", func(_ context.Context, in struct{ A, B int }) (int, error) { return in.A + in.B, nil }),
		agent.MustTool("waits", "", func(ctx context.Context, _ struct{}) (int, error) {
			entered <- struct{}{}
			<-ctx.Done()
			return 0, ctx.Err()
		}),
		agent.MustTool("again", "", func(ctx context.Context, _ struct{}) (string, error) {
			_, err := sb.RunCode(ctx, "1", nil)
			if !errors.Is(err, sandbox.ErrSameContext) {
				t.Errorf("code in the context that waits: %v, want sandbox.ErrSameContext", err)
			}
			if _, err := agent.Begin(ctx, sb, nil); !errors.Is(err, agent.ErrContextBusy) && !errors.Is(err, sandbox.ErrSameContext) {
				t.Errorf("a run in the context that waits: %v", err)
			}
			other, err := sb.Contexts.Create(ctx, nil)
			if err != nil {
				return "", err
			}
			r, err := agent.Begin(ctx, sb, &agent.Params{Context: other.ID})
			if err != nil {
				return "", err
			}
			defer r.Close()
			step, err := r.Exec(ctx, "final_answer('from within')")
			if err != nil {
				return "", err
			}
			var s string
			return s, errors.Join(step.Value.Decode(&s), errOr(s != "from within"))
		}),
	}
	r, err := agent.Begin(t.Context(), sb, &agent.Params{Tools: tools})
	must.Do(t, err)
	defer r.Close()
	if got := observe(t, r, "import threading\nn = []\nts = [threading.Thread(target=lambda i=i: n.append(add(i, 1))) for i in range(8)]\n[x.start() for x in ts]\n[x.join() for x in ts]\n(sum(n), await add.aio(1, 2))").Text(); got != "(36, 3)" {
		t.Errorf("got %q, want %q", got, "(36, 3)")
	}
	if step := observe(t, r, "again()"); step.Error != nil {
		t.Errorf("got %v, want nil", step.Error)
	}
	// A thread that calls a tool after the step is over gets an error, and the
	// next step works.
	observe(t, r, "late = []\ndef f():\n    try:\n        waits()\n    except Exception as e:\n        late.append(e)\nx = threading.Thread(target=f)\nx.start()")
	if got := observe(t, r, "x.join()\n(len(late), add(2, 2))").Text(); got != "(1, 4)" {
		t.Errorf("got %q, want %q", got, "(1, 4)")
	}
	for len(entered) > 0 {
		<-entered
	}
	// The step is cancelled within a tool.
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-entered; cancel() }()
	if _, err := r.Exec(ctx, "waits()"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v, want context.Canceled", err)
	}
	if got := observe(t, r, "add(20, 22)").Text(); got != "42" {
		t.Errorf("got %q, want %q", got, "42")
	}
	// The kernel dies during a tool call.
	if _, err := r.Exec(t.Context(), "import os\nthreading.Thread(target=lambda: (add(1, 1), os._exit(1))).start()\nwaits()"); !errors.Is(err, sandbox.ErrKernelDied) {
		t.Errorf("the kernel died: %v, want sandbox.ErrKernelDied", err)
	}
}

func errOr(failed bool) error {
	if failed {
		return errors.New("not as it should be")
	}
	return nil
}

func BenchmarkToolCall(b *testing.B) {
	sb := sandboxtest.New(b).Create(b)
	r, err := agent.Begin(b.Context(), sb, &agent.Params{Tools: []agent.Tool{
		agent.MustTool("add", "", func(_ context.Context, in struct{ A, B int }) (int, error) { return in.A + in.B, nil }),
	}})
	must.Do(b, err)
	defer r.Close()
	for b.Loop() {
		if step, err := r.Exec(b.Context(), "for i in range(1000): add(i, 1)"); err != nil || step.Error != nil {
			b.Fatalf("got %+v, %v, want no error", step, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/1000, "µs/call")
}
