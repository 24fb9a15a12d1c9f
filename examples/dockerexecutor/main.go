// Command dockerexecutor runs a model's code in containers of your own Docker or Podman, as the
// "Docker executor" of agent frameworks does, with the limits that the documentation of these
// frameworks names. It reads the limits inside a container, solves a task, and shows that a
// container does not outlive a step that fails. Then a team of agents solves the same task. The
// team runs with all of its code in a container, built from the Dockerfile in the directory team.
//
//	CGO_ENABLED=0 go run ./examples/dockerexecutor
//	export OPENAI_API_KEY=…
//	dockerexecutor -image python:3.10 -model NAME 'Which primes are there below 100?'
//
// The daemon is the one that the docker command uses; DOCKER_HOST selects another one. This program
// is also the first process of the containers, so it is built without C. Model, key and tools
// remain outside of the containers: a container receives only code. This also applies to the team:
// its agents call a function of this program to ask the model.
//
// Without a model it solves a task of its own, with scripted answers.
// The model can be at any endpoint that speaks OpenAI's chat completions protocol:
// OPENAI_BASE_URL and OPENAI_MODEL are the defaults of -url and -model.
package main

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/e2bctl/e2bctl/examples/codeagent/loop"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

func main() {
	model := loop.ModelFlag(flag.CommandLine)
	image := flag.String("image", "", "`image` with a Python, which the daemon pulls if need be (default python:3.12-slim)")
	flag.Parse()
	task := strings.Join(flag.Args(), " ")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := model.UseScript(os.Stderr, answers, task)
	task = cmp.Or(task, fibonacci)
	if err == nil {
		err = run(ctx, os.Stdout, model, *image, task)
	}
	if err == nil {
		err = team(ctx, os.Stdout, model, task)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "dockerexecutor:", err)
		os.Exit(1)
	}
}

// container is the configuration of every container.
var container = local.DockerParams{
	MemoryBytes:     512 << 20,
	CPUs:            0.5,
	MaxProcesses:    100,
	CapDrop:         []string{"ALL"},
	SecurityOpt:     []string{"no-new-privileges"},
	User:            "nobody",
	NetworkDisabled: true,
}

func run(ctx context.Context, w io.Writer, model *loop.Model, image, task string, more ...local.Option) (err error) {
	params := container
	params.Image = image
	cloud, err := local.Start(ctx, append(more, local.WithEngine(local.EngineDocker), local.WithDocker(params))...)
	if err != nil {
		return err // the error names the packages to install
	}
	defer func() { err = errors.Join(err, cloud.Close()) }()
	err = sandbox.Use(ctx, func(ctx context.Context, sb *sandbox.Sandbox) error {
		if err := readBack(ctx, w, sb); err != nil {
			return err
		}
		return solve(ctx, w, sb, model, task)
	}, cloud.Option())
	if err != nil {
		return err
	}
	return fail(ctx, w, cloud.Option())
}

// inside is code that reads the limits inside the container.
//
//go:embed inside.py
var inside string

// readBack reads the limits inside the container and compares them with the configured limits.
func readBack(ctx context.Context, w io.Writer, sb *sandbox.Sandbox) error {
	execution, err := sb.RunCode(ctx, inside, nil)
	if err != nil {
		return err
	}
	var got map[string]string
	if err := json.Unmarshal([]byte(execution.Stdout), &got); err != nil {
		return fmt.Errorf("what is printed inside: %w", err)
	}
	fmt.Fprintln(w, "--- limits, as read inside")
	var errs []error
	for _, limit := range []struct{ name, want string }{
		{"mem_limit", fmt.Sprint(container.MemoryBytes)},
		{"cpu_quota", fmt.Sprint(container.CPUs * 100_000)},
		{"pids_limit", fmt.Sprint(container.MaxProcesses)},
		{"cap_drop", "ALL"},
		{"security_opt", "no-new-privileges"},
		{"user", container.User},
		{"network", "off"},
	} {
		fmt.Fprintf(w, "%-12s %s\n", limit.name, got[limit.name])
		if got[limit.name] != limit.want {
			errs = append(errs, fmt.Errorf("%s is %s inside, not %s: the daemon does not apply it", limit.name, got[limit.name], limit.want))
		}
	}
	return errors.Join(errs...)
}

const fibonacci = "Could you give me the 118th number of the Fibonacci sequence? The first and the second are 1."

// answers contains the scripted answers to the task fibonacci, both for the agent of this program
// and for the agents of the team. The second step uses variables of the first step.
var answers = loop.Script{
	"You solve tasks by": {
		"a, b = 0, 1\nfor _ in range(118):\n    a, b = b, a + b\nprint(a)",
		"final_answer(a)",
	},
	"You lead": {
		"from tabulate import tabulate\nn = helper('Give the 118th Fibonacci number. The first and the second are 1.')\nprint(tabulate([[118, str(n)]], headers=['n', 'number']))",
		"final_answer(n)",
	},
	"You help": {"a, b = 0, 1\nfor _ in range(118):\n    a, b = b, a + b\nfinal_answer(a)"},
}

// solve makes the model solve a task in the container.
func solve(ctx context.Context, w io.Writer, sb *sandbox.Sandbox, model *loop.Model, task string) error {
	a := &loop.Agent{Model: model, Run: agent.Params{
		Limits: agent.Limits{MaxSteps: 10, StepTimeout: time.Minute},
		Trace:  &agent.Trace{Step: show(w)},
	}}
	result, err := a.Solve(ctx, sb, task)
	if err != nil {
		return err
	}
	var answer any
	if err := result.Answer.Decode(&answer); err != nil {
		return err
	}
	fmt.Fprintln(w, "=>", answer)
	return nil
}

// show returns a function that prints each step, with the result in the form that the model
// receives.
func show(w io.Writer) func(context.Context, int, string) (context.Context, func(*agent.Step, error)) {
	return func(ctx context.Context, n int, code string) (context.Context, func(*agent.Step, error)) {
		fmt.Fprintf(w, "--- step %d\n%s\n", n, code)
		return ctx, func(step *agent.Step, _ error) { fmt.Fprintf(w, "--- gave\n%s", step.Observation()) }
	}
}
