package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestTrace checks that hooks see each step and each call with all that belongs to it, that these run in the contexts
// of their hooks, and that each end is reported with its error. Hooks that are not set are left out.
func TestTrace(t *testing.T) {
	t.Parallel()
	type key struct{}
	var notes []string
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	run := ""
	step := func(ctx context.Context, n int, code string) (context.Context, func(*Step, error)) {
		note("step %d of %q begins", n, code)
		return context.WithValue(ctx, key{}, "the step"), func(s *Step, err error) { note("step %d ends: %v", s.N, err) }
	}
	call := func(ctx context.Context, c ToolCall) (context.Context, func(error)) {
		note("%s begins in %v, step %d, with %s; of this run: %v", c.Tool, ctx.Value(key{}), c.Step, c.Arguments.Bytes(), c.Run == run)
		return context.WithValue(ctx, key{}, "the call"), func(err error) { note("%s ends: %v", c.Tool, err) }
	}
	const began, ended = `step 1 of "work" begins`, "step 1 ends: <nil>"
	for _, tt := range []struct {
		trace *Trace
		want  []string
	}{
		{nil, []string{"give runs in <nil>"}},
		{&Trace{}, []string{"give runs in <nil>"}},
		{&Trace{Step: step}, []string{began, "give runs in the step", ended}},
		{&Trace{Tool: call}, []string{
			`give begins in <nil>, step 1, with {"v":1,"value":{"N":5}}; of this run: true`, "give runs in the call", "give ends: <nil>",
			`fail begins in <nil>, step 1, with {"v":1,"value":{}}; of this run: true`, "fail ends: no luck",
		}},
		{&Trace{Step: step, Tool: call}, []string{
			began, `give begins in the step, step 1, with {"v":1,"value":{"N":5}}; of this run: true`, "give runs in the call", "give ends: <nil>",
			`fail begins in the step, step 1, with {"v":1,"value":{}}; of this run: true`, "fail ends: no luck", ended,
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			notes = nil
			h := &scriptedHost{t: t, answers: map[string]any{}, logger: slog.New(slog.DiscardHandler)}
			h.code = map[string]func(context.Context, kernelconn.Handler) (jupyter.ExecuteReply, error){
				"work": func(ctx context.Context, handler kernelconn.Handler) (jupyter.ExecuteReply, error) {
					return jupyter.ExecuteReply{Status: "ok"}, errors.Join(
						h.call(ctx, handler, "give", `{"v":1,"value":{"N":5}}`), h.call(ctx, handler, "fail", `{"v":1,"value":{}}`))
				},
			}
			r := h.begin(Params{Trace: tt.trace, Tools: []Tool{
				MustTool("give", "", func(ctx context.Context, in struct{ N int }) (int, error) {
					note("give runs in %v", ctx.Value(key{}))
					if err := kernelconn.CheckNotWaiting(ctx, "sandbox-1", "context-1"); !errors.Is(err, kernelconn.ErrSameContext) {
						t.Errorf("code in the context that waits: got error %v, want %v", err, kernelconn.ErrSameContext)
					}
					return in.N, nil
				}),
				MustTool("fail", "", func(context.Context, struct{}) (int, error) { return 0, errors.New("no luck") }),
			}})
			run = r.ID()
			_, err := r.Exec(t.Context(), "work")
			must.Do(t, errors.Join(err, r.Close()))
			if diff := cmp.Diff(tt.want, notes); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
