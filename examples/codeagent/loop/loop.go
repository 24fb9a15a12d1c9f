// Package loop is the loop of a code agent: a model writes Python, a sandbox
// runs it, the model sees what came of it, and so on until the code gives the
// final answer. Model, credentials and tools are here; only code goes to the
// sandbox.
package loop

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/state"
)

// Agent solves tasks. It may solve several at once, in different sandboxes.
type Agent struct {
	Model *Model
	// Instructions are added to what the model is told of its task and tools.
	Instructions string
	// Run says how code runs: its tools, state, guard, limits and audit. The
	// answers of the model without code count as steps of Limits.MaxSteps, too;
	// 0 means DefaultMaxSteps. Prompt is the task.
	Run agent.Params
}

// DefaultMaxSteps is how many steps an agent has when nothing else is said.
const DefaultMaxSteps = 20

// Result is the solution of a task.
type Result struct {
	// Answer is what the code gave to final_answer.
	Answer state.Value
	// Metrics are the run's, tokens included.
	Metrics agent.Metrics
}

const noCode = "There was no complete block of Python in your answer. Write one, between ```python and ```; call final_answer in it when you know the answer."

// Solve has the agent solve a task in a sandbox. The error is
// [agent.ErrStepLimit] when the steps are used up; without a final answer the
// result has metrics alone. A model that cannot be asked, a kernel that died and
// the end of ctx end the run; exceptions and steps that took too long are the
// model's to mend.
func (a *Agent) Solve(ctx context.Context, sb *sandbox.Sandbox, task string) (result Result, err error) {
	params := a.Run
	params.Prompt = task
	if params.Limits.MaxSteps == 0 {
		params.Limits.MaxSteps = DefaultMaxSteps
	}
	params.Redact = redacted(params.Redact, string(a.Model.Key))
	system, err := systemPrompt(a.Instructions, params)
	if err != nil {
		return Result{}, err
	}
	run, err := agent.Begin(ctx, sb, &params)
	if err != nil {
		return Result{}, err
	}
	defer func() {
		err = errors.Join(err, run.Close())
		result.Metrics = run.Metrics()
	}()
	chat := []Message{{"system", system}, {"user", task}}
	for range params.Limits.MaxSteps {
		said, err := a.Model.Complete(ctx, chat)
		if err != nil {
			return Result{}, err
		}
		if err := run.AddTokens(ctx, said.Tokens); err != nil {
			return Result{}, err
		}
		observation := noCode
		if code, ok := codeOf(said.Text); ok {
			step, err := run.Exec(ctx, code)
			switch {
			case err == nil && step.Final:
				return Result{Answer: step.Value}, nil
			case err == nil, errors.Is(err, agent.ErrStepTimeout):
				observation = step.Observation()
			default:
				return Result{}, err
			}
		}
		chat = append(chat, Message{"assistant", said.Text}, Message{"user", observation})
	}
	return Result{}, fmt.Errorf("%w: no final answer in %d", agent.ErrStepLimit, params.Limits.MaxSteps)
}

// shortestKey tells keys from the placeholders that endpoints without accounts
// are given: those are words, which code may print.
const shortestKey = 16

// redacted adds the key to what code must not see: a tool that fails may quote
// it.
func redacted(values []string, key string) []string {
	if len(key) < shortestKey {
		return values
	}
	return append(slices.Clone(values), key)
}
