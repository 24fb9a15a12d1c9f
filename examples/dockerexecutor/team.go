package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/e2bctl/e2bctl/examples/codeagent/loop"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/template"
	"github.com/e2bctl/e2bctl/state"
)

// teamFiles contains a Dockerfile, and the code of the agents, which the Dockerfile installs.
//
//go:embed team
var teamFiles embed.FS

// team builds an image with a whole team of agents, and makes the team solve a task in a container
// without a network. The key remains in this program, which asks the model on behalf of the team.
func team(ctx context.Context, w io.Writer, model *loop.Model, task string, more ...local.Option) (err error) {
	params := container
	params.User, params.NetworkDisabled = "", false // the Dockerfile sets the user and installs packages
	cloud, err := local.Start(ctx, append(more, local.WithEngine(local.EngineDocker), local.WithDocker(params))...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cloud.Close()) }()
	fmt.Fprintln(w, "--- a team of agents, all of it inside")
	built, err := build(ctx, w, cloud.Option())
	if err != nil {
		return err
	}
	return sandbox.Use(ctx, func(ctx context.Context, sb *sandbox.Sandbox) error {
		return solveInside(ctx, w, sb, model, task)
	}, cloud.Option(), sandbox.WithTemplate(built), sandbox.WithInternet(false))
}

// build builds a template from the Dockerfile and returns its name. If a step fails, it prints
// the step's output.
func build(ctx context.Context, w io.Writer, cloud sandbox.ClientOption) (name string, err error) {
	dir, err := os.MkdirTemp("", "dockerexecutor-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.CopyFS(dir, teamFiles); err != nil {
		return "", err
	}
	dir = filepath.Join(dir, "team")
	dockerfile, err := os.Open(filepath.Join(dir, "Dockerfile"))
	if err != nil {
		return "", err
	}
	defer dockerfile.Close()
	client, err := sandbox.NewClient(cloud)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	built, err := template.Build(ctx, client.Templates, "agent-sandbox", template.FromDockerfile(dockerfile, nil), &template.BuildParams{Dir: dir})
	if failed, ok := errors.AsType[*template.BuildError](err); ok {
		for _, line := range failed.Logs {
			fmt.Fprintln(w, line.Message)
		}
	}
	if err != nil {
		return "", err
	}
	return built.Name, nil
}

// question is the argument of the tool ask.
type question struct {
	Messages []message `py:"messages"`
}

type message struct {
	Role    string `py:"role"`
	Content string `py:"content"`
}

// maxQuestions limits the cost of a task, because any code in the container can ask.
const maxQuestions = 20

// solveInside runs the team in a sandbox of the team's image.
func solveInside(ctx context.Context, w io.Writer, sb *sandbox.Sandbox, model *loop.Model, task string) (err error) {
	ask := agent.MustTool("ask", "Asks the model for the next message.", func(ctx context.Context, q question) (string, error) {
		var chat []loop.Message
		for _, m := range q.Messages {
			chat = append(chat, loop.Message{Role: m.Role, Content: m.Content})
		}
		said, err := model.Complete(ctx, chat)
		if err != nil {
			return "", err
		}
		return said.Text, nil
	}, agent.WithToolLimits(agent.ToolLimits{MaxCalls: maxQuestions, MaxConcurrency: 1}))
	variables := state.New()
	if err := variables.Set("task", task); err != nil {
		return err
	}
	run, err := agent.Begin(ctx, sb, &agent.Params{
		State: variables, Tools: []agent.Tool{ask}, Stdout: w, Stderr: w,
		Limits: agent.Limits{MaxSteps: 1, StepTimeout: 10 * time.Minute},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, run.Close()) }()
	step, err := run.Exec(ctx, "import agents\nfinal_answer(agents.solve(task, ask))")
	if err != nil {
		return err
	}
	if !step.Final {
		return fmt.Errorf("the team gave no answer: %s", step.Observation())
	}
	var answer any
	if err := step.Value.Decode(&answer); err != nil {
		return err
	}
	fmt.Fprintln(w, "=>", answer)
	return nil
}
