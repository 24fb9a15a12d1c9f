//go:build linux

package e2e

import (
	"context"
	"errors"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
)

// A run that is cancelled deep within nested agents ends all of them, and the
// code of each, and leaves nothing behind: every context works at once.
func TestCancelledInANestedAgent(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	deepest, cancelled := make(chan struct{}), make(chan string, 3)
	waits := agent.MustTool("waits", "", func(ctx context.Context, _ struct{}) (int, error) {
		close(deepest)
		<-ctx.Done()
		cancelled <- "tool"
		return 0, ctx.Err()
	})
	var contexts []sandbox.ContextID
	// managed runs code in a context of its own.
	managed := func(name, code string, tools ...agent.Tool) agent.Tool {
		c, err := sb.Contexts.Create(t.Context(), nil)
		must.Do(t, err)
		contexts = append(contexts, c.ID)
		return agent.MustManaged(name, "", agent.Budget{}, func(ctx context.Context, task string) (string, error) {
			r, err := agent.Begin(ctx, sb, &agent.Params{Context: c.ID, Tools: tools})
			if err != nil {
				return "", err
			}
			defer r.Close()
			_, err = r.Exec(ctx, code)
			if errors.Is(err, context.Canceled) {
				cancelled <- name
			}
			return "", err
		})
	}
	inner := managed("inner", "waits()", waits)
	outer := managed("outer", "inner('wait')", inner)
	r := begin(t, sb, &agent.Params{Tools: []agent.Tool{outer}})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-deepest; cancel() }()
	if step, err := r.Exec(ctx, "outer('delegate')"); !errors.Is(err, context.Canceled) || step == nil {
		t.Errorf("got %+v, %v, want context.Canceled and a step", step, err)
	}
	cancel()
	if err := r.Close(); err != nil { // this waits for the agents
		t.Error(err)
	}
	close(cancelled)
	ended := map[string]bool{}
	for name := range cancelled {
		ended[name] = true
	}
	if len(ended) != 3 {
		t.Errorf("%v ended with the run, want 3", ended)
	}
	for _, id := range append(contexts, "") {
		execution, err := sb.RunCode(t.Context(), "import threading\n6 * 7, threading.active_count(), 'waits' in globals()", &sandbox.RunCodeParams{Context: id})
		if err != nil || execution.Text()[:4] != "(42," {
			t.Errorf("context %q afterwards: %+v, %v, want a text that begins with %q and no error", id, execution, err, "(42,")
		}
	}
}
