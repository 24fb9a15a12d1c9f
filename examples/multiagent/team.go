package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/e2bctl/e2bctl/examples/codeagent/loop"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/state"
)

// These are instructions for the agents in addition to their tools.
const (
	managerRole = `You lead a team and check nothing yourself. Have the programmer find the answer, then the checker judge it; when the checker disagrees, have it done again. They know only what you write to them.`

	programmerRole = `You are a programmer. Your final answer is the value that you were asked for, without words.`

	checkerRole = `You check the answers of others, in another way than they would have been found. Your final answer is a dict with the keys "right", a bool, and "why", a sentence.`
)

// budget limits each call that the manager makes to an agent.
var budget = agent.Budget{MaxDepth: -1, MaxCalls: 10, Timeout: 5 * time.Minute, MaxTokens: 50_000}

// team is a manager and the agents that it calls. The loops of all agents run in this process,
// which alone has the model's key. The code of the agents runs in sandboxes.
type team struct {
	model *loop.Model
	log   *log.Logger
	// shared is the sandbox of the manager and the programmer: they have separate
	// variables, but the same files.
	shared *sandbox.Sandbox
	// apart is the checker's own sandbox, so that no file or variable of the other agents can mislead
	// the checker.
	apart *sandbox.Sandbox
}

// solve makes the manager solve a task.
func (t *team) solve(ctx context.Context, task string) (state.Value, error) {
	// The code that calls an agent waits for it, so the agent needs another context.
	desk, err := t.shared.Contexts.Create(ctx, nil)
	if err != nil {
		return state.Value{}, err
	}
	manager := t.member(managerRole)
	manager.Run.Tools = []agent.Tool{
		t.managed("programmer", "Writes programs. Gives the value that the task asks for.", programmerRole, t.shared, desk.ID),
		t.managed("checker", "Checks an answer. Give it the question as well. Gives a dict with the keys right and why.", checkerRole, t.apart, ""),
	}
	result, err := manager.Solve(ctx, t.shared, task)
	t.report("manager", result, err)
	return result.Answer, err
}

// managed returns a tool by which the manager calls an agent. The agent keeps its variables between
// calls, so a call waits until earlier calls have ended.
func (t *team) managed(name, doc, role string, sb *sandbox.Sandbox, id sandbox.ContextID) agent.Tool {
	a := t.member(role)
	a.Run.Context = id
	return agent.MustManaged(name, doc, budget, func(ctx context.Context, task string) (state.Value, error) {
		t.log.Printf("%s: asked: %s", name, task)
		result, err := a.Solve(ctx, sb, task)
		t.report(name, result, err)
		return result.Answer, err
	}, agent.WithToolLimits(agent.ToolLimits{MaxConcurrency: 1}))
}

func (t *team) member(role string) *loop.Agent {
	return &loop.Agent{Model: t.model, Instructions: role, Run: agent.Params{
		Guard:  &agent.Guard{Presets: []agent.Preset{agent.Science, agent.Utilities}},
		Limits: agent.Limits{MaxSteps: 8, StepTimeout: 10 * time.Minute, MaxOutputBytes: 5000},
	}}
}

func (t *team) report(name string, result loop.Result, err error) {
	m := result.Metrics
	outcome := fmt.Sprint(err)
	if err == nil {
		outcome = text(result.Answer)
	}
	t.log.Printf("%s: %d steps, %d errors, %d tokens: %s", name, m.Steps, m.Errors, m.Tokens, outcome)
}

// text returns a value as Go prints it.
func text(v state.Value) string {
	var natural any
	if err := v.Decode(&natural); err != nil {
		return err.Error()
	}
	return fmt.Sprint(natural)
}
