package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrBudget is returned by calls in a managed agent if the [Budget] of this agent is spent.
var ErrBudget = errors.New("agent: the budget is spent")

// maxAgentDepth limits the nesting of calls of agents, whatever their budgets are.
const maxAgentDepth = 8

// Budget limits one call of a managed agent. It includes all nested calls, because an inner agent
// also spends the budgets of the agents that enclose it. A zero field sets no limit.
type Budget struct {
	// MaxDepth limits the levels of agents that are nested in this agent. A negative number allows no
	// nested agents. More than 8 levels in all are always refused.
	MaxDepth int
	// MaxCalls limits the number of calls of tools and agents by code in the agent's runs.
	MaxCalls int
	// Timeout limits the duration of the call.
	Timeout time.Duration
	// MaxTokens limits the tokens that may be spent: see [SpendTokens].
	MaxTokens int64
}

// Task is the argument of a managed agent.
type Task struct {
	Task string `py:"task" doc:"what the agent is to do, with all that it has to know"`
}

// NewManaged makes a tool from an agent: code calls the tool by its name with a task and
// receives the agent's result. run is the agent's loop. The loop runs in this program, with the
// credentials of this program. It must execute the agent's code in a separate run, in another
// context or sandbox, because the calling code waits ([sandbox.ErrSameContext]). run must pass its
// ctx to everything that it calls: ctx contains the budget, and ends with the calling step.
//
// Errors are those of [NewTool].
func NewManaged[Out any](name, doc string, budget Budget, run func(ctx context.Context, task string) (Out, error), opts ...ToolOption) (Tool, error) {
	return NewTool(name, doc, func(ctx context.Context, in Task) (Out, error) {
		ctx, cancel, err := enterAgent(ctx, name, budget)
		if err != nil {
			var none Out
			return none, err
		}
		defer cancel(nil)
		out, err := run(ctx, in.Task)
		if cause := context.Cause(ctx); err != nil && errors.Is(cause, ErrBudget) && !errors.Is(err, ErrBudget) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return out, err
	}, opts...)
}

// MustManaged is like [NewManaged], but panics on an error.
func MustManaged[Out any](name, doc string, budget Budget, run func(ctx context.Context, task string) (Out, error), opts ...ToolOption) Tool {
	return orPanic(NewManaged(name, doc, budget, run, opts...))
}

// agentFrame is one call of a managed agent.
type agentFrame struct {
	outer  *agentFrame
	name   string
	budget Budget
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	calls  int
	tokens int64
}

type agentKey struct{}

func frameOfAgent(ctx context.Context) *agentFrame {
	frame, _ := ctx.Value(agentKey{}).(*agentFrame)
	return frame
}

// enterAgent begins a call of a managed agent. The returned context contains the frame of this
// call. The caller must call the returned function.
func enterAgent(ctx context.Context, name string, budget Budget) (context.Context, context.CancelCauseFunc, error) {
	outer := frameOfAgent(ctx)
	depth := 0
	for f := outer; f != nil; f = f.outer {
		depth++
		if f.budget.MaxDepth != 0 && depth > f.budget.MaxDepth {
			return nil, nil, fmt.Errorf("%w: %s may have %d agents nested in it", ErrBudget, f.name, max(f.budget.MaxDepth, 0))
		}
	}
	if depth >= maxAgentDepth {
		return nil, nil, fmt.Errorf("%w: agents are nested %d deep", ErrBudget, depth)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	frame := &agentFrame{outer: outer, name: name, budget: budget, cancel: cancel}
	if budget.Timeout > 0 {
		timer := time.AfterFunc(budget.Timeout, func() { frame.cancel(frame.spent(budget.Timeout.String())) })
		context.AfterFunc(ctx, func() { timer.Stop() })
	}
	return context.WithValue(ctx, agentKey{}, frame), cancel, nil
}

func (f *agentFrame) spent(budget string) error {
	return fmt.Errorf("%w: %s had a budget of %s", ErrBudget, f.name, budget)
}

// spend charges calls and tokens to the frame and to all frames that enclose it. If a limit is
// exceeded, spend ends the agent to which this limit belongs.
func (f *agentFrame) spend(calls int, tokens int64) error {
	var failed error
	for ; f != nil; f = f.outer {
		f.mu.Lock()
		f.calls += calls
		f.tokens += tokens
		var err error
		switch {
		case f.budget.MaxCalls > 0 && f.calls > f.budget.MaxCalls:
			err = f.spent(fmt.Sprintf("%d calls", f.budget.MaxCalls))
		case f.budget.MaxTokens > 0 && f.tokens > f.budget.MaxTokens:
			err = f.spent(fmt.Sprintf("%d tokens", f.budget.MaxTokens))
		}
		f.mu.Unlock()
		if err != nil {
			f.cancel(err)
			failed = err
		}
	}
	return failed
}

// SpendTokens charges tokens to the managed agents whose calls enclose ctx. The loop of an agent
// should call it after each answer of the model. If one of the agents has no tokens left,
// SpendTokens returns [ErrBudget], and the context of this agent has ended. Outside a managed
// agent, SpendTokens does nothing. A loop with a [Run] should call [Run.SpendTokens] instead,
// because that method also counts the tokens.
func SpendTokens(ctx context.Context, tokens int64) error {
	return frameOfAgent(ctx).spend(0, tokens)
}

// chargeCall charges a tool call to the enclosing agents.
func chargeCall(ctx context.Context) error { return frameOfAgent(ctx).spend(1, 0) }
