// Package loop is the loop of a code agent: a model writes Python, a sandbox runs it, the model
// sees the result, and so on until the code gives the final answer. Model, credentials and tools
// remain in this process. The sandbox receives only code.
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
	// Instructions are added to the description of the task and the tools in the prompt.
	Instructions string
	// Run configures the runs of code: tools, state, guard, limits and audit. Answers of the
	// model without code also count as steps of Limits.MaxSteps; 0 means DefaultMaxSteps. Solve
	// sets Prompt to the task.
	Run agent.Params
}

// DefaultMaxSteps limits the steps of an agent unless Limits.MaxSteps is set.
const DefaultMaxSteps = 20

// Result is the solution of a task.
type Result struct {
	// Answer is the argument that the code passed to final_answer.
	Answer state.Value
	// Metrics are the counters of the run, including tokens.
	Metrics agent.Metrics
}

const noCode = "There was no complete block of Python in your answer. Write one, between ```python and ```; call final_answer in it when you know the answer."

// Solve makes the agent solve a task in a sandbox. The error is [agent.ErrStepLimit] if all steps
// are used up without a final answer. Without a final answer the result contains only metrics.
// Solve returns an error if the model cannot be reached, the kernel dies or ctx ends. Exceptions
// and slow steps are observations for the model to correct.
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
		if err := run.SpendTokens(ctx, said.Tokens); err != nil {
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

// shortestKey is the least length of a key that is treated as secret. An endpoint without accounts
// receives a placeholder as its key. The placeholder is a word that code may print.
const shortestKey = 16

// redacted adds the key to the secret values, because the error of a tool may quote it.
func redacted(values []string, key string) []string {
	if len(key) < shortestKey {
		return values
	}
	return append(slices.Clone(values), key)
}
