// Command codeagent makes a language model solve a task: the model writes Python,
// a sandbox runs it, and the model sees the result, until it has the answer.
//
//	codeagent -local
//	export OPENAI_API_KEY=…
//	codeagent -local -model NAME 'What is the 100th Fibonacci number?'
//	codeagent -local -model NAME -dir data 'Which month of sales.csv was the best?'
//
// Without a model it solves a task of its own, with scripted answers. The model can be at any
// endpoint that speaks OpenAI's chat completions protocol: OPENAI_BASE_URL and OPENAI_MODEL are the
// defaults of -url and -model. The key comes only from the environment, so that no list of
// processes shows it. Without -local, E2B_API_KEY and the other E2B_ variables name the service to
// use.
//
// The loop is package loop, in the directory below.
package main

import (
	"context"
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

const usage = `Usage: codeagent [flags] [TASK]

TASK is what the model is asked, in words. Without a model there is none: the example solves a
task of its own.

`

func main() {
	model := loop.ModelFlag(flag.CommandLine)
	var j job
	flag.BoolVar(&j.local, "local", false, "start a local cloud in this process instead of using a service")
	flag.StringVar(&j.documents, "dir", "", "`directory` whose text files the code may read")
	flag.StringVar(&j.audit, "audit", "", "`file` to add the audit to, in lines of JSON")
	flag.IntVar(&j.steps, "steps", 10, "`number` of steps that the agent has")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	j.task = strings.Join(flag.Args(), " ")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := j.script(os.Stderr, model)
	if err == nil {
		err = j.run(ctx, os.Stdout, model)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "codeagent:", err)
		os.Exit(1)
	}
}

// job is the task of the command line.
type job struct {
	task, documents, audit string
	steps                  int
	local                  bool
}

// fibonacci is the task of the scripted model. The first step of that model contains a mistake.
const fibonacci = "What is the 100th Fibonacci number? The first and the second are 1."

var answers = loop.Script{"": {
	"final_answer(fibonacci(100))",
	"def fibonacci(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n[fibonacci(n) for n in range(1, 11)]",
	"final_answer(fibonacci(100))",
}}

// script does nothing if the user has set a model. Otherwise it sets the example's own task and a
// scripted model, which solves only that task. A task of the user is then an error.
func (j *job) script(w io.Writer, model *loop.Model) error {
	if err := model.UseScript(w, answers, j.task); err != nil || model.Script == nil {
		return err
	}
	j.task = fibonacci
	return nil
}

func (j job) run(ctx context.Context, w io.Writer, model *loop.Model) (err error) {
	if j.task == "" {
		return errors.New("which task? See -h")
	}
	a := &loop.Agent{Model: model, Run: agent.Params{
		Guard:  &agent.Guard{Presets: []agent.Preset{agent.DataAnalysis, agent.TextProcessing, agent.Utilities}},
		Limits: agent.Limits{MaxSteps: j.steps, StepTimeout: time.Minute, MaxOutputBytes: 5000},
		Trace:  &agent.Trace{Step: show(w)},
	}}
	if j.documents != "" {
		d, err := openDocuments(j.documents)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.Close()) }()
		if a.Run.State, err = d.state(); err != nil {
			return err
		}
		a.Run.Tools = []agent.Tool{d.tool()}
	}
	if j.audit != "" {
		file, err := os.OpenFile(j.audit, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		a.Run.Audit = file
	}
	// The model's code cannot reach the network, and others cannot reach the sandbox.
	options := []sandbox.CreateOption{sandbox.WithInternet(false), sandbox.WithPrivateTraffic()}
	if j.local {
		var cloud *local.Cloud
		if cloud, err = local.Start(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, cloud.Close()) }()
		options = append(options, cloud.Option())
	}
	return sandbox.Use(ctx, func(ctx context.Context, sb *sandbox.Sandbox) error {
		result, err := a.Solve(ctx, sb, j.task)
		m := result.Metrics
		fmt.Fprintf(w, "--- %d steps, %d errors, %d calls of tools, %d tokens, %s\n", m.Steps, m.Errors, m.ToolCalls, m.Tokens, m.Duration.Round(time.Millisecond))
		if err != nil {
			return err
		}
		var answer any
		if err := result.Answer.Decode(&answer); err != nil {
			return err
		}
		fmt.Fprintln(w, "=>", answer)
		return nil
	}, options...)
}

// show returns a function that prints each step, with the result in the form that the model
// receives.
func show(w io.Writer) func(context.Context, int, string) (context.Context, func(*agent.Step, error)) {
	return func(ctx context.Context, n int, code string) (context.Context, func(*agent.Step, error)) {
		fmt.Fprintf(w, "--- step %d\n%s\n", n, code)
		return ctx, func(step *agent.Step, _ error) { fmt.Fprintf(w, "--- gave\n%s", step.Observation()) }
	}
}
