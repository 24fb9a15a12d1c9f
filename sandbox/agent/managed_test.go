package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// TestErrorsOfAgents checks that the error of an agent says once that its budget is spent, and that an agent whose budget
// is not the reason, or that ended well, keeps the error that it returns.
func TestErrorsOfAgents(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	var given context.Context
	for name, tt := range map[string]struct {
		run  func(ctx context.Context) error
		want string
	}{
		"fine":             {func(context.Context) error { return nil }, "<nil>"},
		"fine but over it": {func(ctx context.Context) error { _ = SpendTokens(ctx, 11); return nil }, "<nil>"},
		"broken":           {func(context.Context) error { return broken }, "broken"},
		"broken over it": {
			func(ctx context.Context) error { _ = SpendTokens(ctx, 11); return broken },
			"agent: the budget is spent: helper had a budget of 10 tokens: broken",
		},
		"over it":    {func(ctx context.Context) error { return SpendTokens(ctx, 11) }, "agent: the budget is spent: helper had a budget of 10 tokens"},
		"calls":      {func(ctx context.Context) error { return errors.Join(chargeCall(ctx), chargeCall(ctx)) }, "agent: the budget is spent: helper had a budget of 1 calls"},
		"time":       {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, "agent: the budget is spent: helper had a budget of 1h0m0s: context canceled"},
		"an inner":   {func(ctx context.Context) error { _, _, err := enterAgent(ctx, "inner", Budget{}); return err }, "agent: the budget is spent: helper may have 0 agents nested in it"},
		"other time": {func(ctx context.Context) error { return ctx.Err() }, "<nil>"},
	} {
		synctest.Test(t, func(t *testing.T) {
			budget := Budget{MaxDepth: -1, MaxCalls: 1, MaxTokens: 10, Timeout: time.Hour}
			helper := MustManaged("helper", "", budget, func(ctx context.Context, task string) (string, error) {
				given = ctx
				if name == "other time" {
					<-time.After(time.Hour - 1)
				}
				return "done: " + task, tt.run(ctx)
			})
			v, err := helper.call(t.Context(), mustValue(t, map[string]any{"task": "work"}))
			if fmt.Sprint(err) != tt.want {
				t.Errorf("%s: got error %v, want %s", name, err, tt.want)
			}
			if got := string(v.Bytes()); err == nil && got != `{"v":1,"value":"done: work"}` {
				t.Errorf("%s: got %s", name, got)
			}
			if given.Err() == nil {
				t.Errorf("%s: the context of the agent goes on", name)
			}
		})
	}
}

// TestBudgetsSpentAtOnce checks that if several budgets are spent at once, each of these agents ends, and the error names
// the outermost one.
func TestBudgetsSpentAtOnce(t *testing.T) {
	t.Parallel()
	outer, endOuter, err := enterAgent(t.Context(), "outer", Budget{MaxTokens: 5})
	must.Do(t, err)
	defer endOuter(nil)
	inner, endInner, err := enterAgent(outer, "inner", Budget{MaxTokens: 5})
	must.Do(t, err)
	defer endInner(nil)
	if err := SpendTokens(inner, 5); err != nil {
		t.Errorf("the last tokens: got error %v, want none", err)
	}
	if err, want := SpendTokens(inner, 1), "outer had a budget of 5 tokens"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got error %v, want %q", err, want)
	}
	if outer.Err() == nil || !strings.Contains(context.Cause(inner).Error(), "inner had") {
		t.Errorf("the outer one ended with %v, the inner one with %v", context.Cause(outer), context.Cause(inner))
	}
	if err := errors.Join(SpendTokens(t.Context(), 1<<30), chargeCall(t.Context())); err != nil {
		t.Errorf("outside of agents: got error %v, want none", err)
	}
}
