package agent

import (
	"context"
	"errors"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// Agents are nested as deeply as each of those around them allows, eight at most.
func TestDepthOfAgents(t *testing.T) {
	t.Parallel()
	for depth, nested := range map[int]int{0: maxAgentDepth - 1, -1: 0, 1: 1, 2: 2, maxAgentDepth: maxAgentDepth - 1} {
		ctx, end, err := enterAgent(t.Context(), "outer", Budget{MaxDepth: depth})
		must.Do(t, err)
		for range nested {
			inner, endInner, err := enterAgent(ctx, "inner", Budget{})
			if err != nil {
				t.Fatalf("depth %d: %v, want %d nested agents", depth, err, nested)
			}
			defer endInner(nil)
			ctx = inner
		}
		if _, _, err := enterAgent(ctx, "inner", Budget{}); !errors.Is(err, ErrBudget) {
			t.Errorf("depth %d: one agent more than %d: got error %v, want ErrBudget", depth, nested, err)
		}
		end(nil)
	}
}

// Outer agents also pay for an inner one. An agent that exceeds its budget ends, with
// all agents within it, and those around it continue.
func TestBudgetsOfNestedAgents(t *testing.T) {
	t.Parallel()
	for what, tt := range map[string]struct {
		budget Budget
		spend  func(context.Context) error
	}{
		"calls":  {Budget{MaxCalls: 3}, chargeCall},
		"tokens": {Budget{MaxTokens: 30}, func(ctx context.Context) error { return SpendTokens(ctx, 10) }},
	} {
		outermost, endOutermost, err := enterAgent(t.Context(), "outermost", Budget{})
		must.Do(t, err)
		defer endOutermost(nil)
		outer, endOuter, err := enterAgent(outermost, "outer", tt.budget)
		must.Do(t, err)
		defer endOuter(nil)
		inner, endInner, err := enterAgent(outer, "inner", Budget{})
		must.Do(t, err)
		defer endInner(nil)
		for i, ctx := range []context.Context{outer, inner, inner} {
			if err := tt.spend(ctx); err != nil || outer.Err() != nil {
				t.Errorf("%s, time %d: got error %v, want none: the budget is for three", what, i+1, err)
			}
		}
		if err := tt.spend(inner); !errors.Is(err, ErrBudget) {
			t.Errorf("%s beyond the budget: got error %v, want ErrBudget", what, err)
		}
		if !errors.Is(context.Cause(outer), ErrBudget) || !errors.Is(context.Cause(inner), ErrBudget) || outermost.Err() != nil {
			t.Errorf("%s beyond the budget: outer ended with %v, inner with %v, outermost with %v", what, context.Cause(outer), context.Cause(inner), outermost.Err())
		}
	}
}
