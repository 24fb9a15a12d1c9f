// Command wasmexecutor runs a model's code as Python in WebAssembly, as the "WebAssembly executor"
// of agent frameworks did. It solves a task with a tool that runs in this program, under a guard
// that refuses an import. It then attacks the sandbox, and shows that the attacks fail.
//
//	go run ./examples/wasmexecutor
//	go run ./examples/wasmexecutor -from DIR                     without a network
//	export OPENAI_API_KEY=…
//	wasmexecutor -model NAME 'Which primes are there below 100?'
//
// The first run prepares the machine, as "e2bctl local setup --engine wasm" does: npm fetches Deno
// and Pyodide. Model, key and tools remain outside of the sandbox, which receives only code.
//
// Without a model it solves a task of its own, with scripted answers.
// The model can be at any endpoint that speaks OpenAI's chat completions protocol:
// OPENAI_BASE_URL and OPENAI_MODEL are the defaults of -url and -model.
package main

import (
	"cmp"
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

func main() {
	model := loop.ModelFlag(flag.CommandLine)
	from := flag.String("from", "", "prepare the machine with the packages of npm in `DIR`, without a network")
	flag.Parse()
	task := strings.Join(flag.Args(), " ")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := model.UseScript(os.Stderr, answers, task)
	if err == nil {
		_, err = local.SetupWasm(ctx, os.Stderr, &local.SetupWasmParams{From: *from})
	}
	if err == nil {
		err = run(ctx, os.Stdout, model, cmp.Or(task, fibonacci))
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "wasmexecutor:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer, model *loop.Model, task string) (err error) {
	cloud, err := local.Start(ctx, local.WithEngine(local.EngineWasm), local.WithResources(local.Resources{MemoryBytes: 512 << 20}))
	if err != nil {
		return err // the error explains how to prepare the machine
	}
	defer func() { err = errors.Join(err, cloud.Close()) }()
	return sandbox.Use(ctx, func(ctx context.Context, sb *sandbox.Sandbox) error {
		if err := solve(ctx, w, sb, model, task); err != nil {
			return err
		}
		return attack(ctx, w, sb)
	}, cloud.Option())
}

const fibonacci = "Could you give me the 100th number of the Fibonacci sequence? The first and the second are 1. Compare what you write with the numbers that known gives."

// answers contains the answers for the task fibonacci. The guard refuses the first step. The third
// step uses the function that the second step defines.
var answers = loop.Script{"": {
	"import numpy as np\nnp.linalg.matrix_power([[1, 1], [1, 0]], 100)",
	"def fibonacci(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n\n[n for n in (1, 2, 10, 90) if fibonacci(n) != known(n)]",
	"final_answer(fibonacci(100))",
}}

// known is a tool that code in the sandbox can call. It always runs in this program.
var known = agent.MustTool("known", "Gives the nth number of the Fibonacci sequence, for n from 1 to 90.",
	func(_ context.Context, in struct {
		N int `py:"n"`
	}) (int64, error) {
		if in.N < 1 || in.N > 90 {
			return 0, &agent.ToolError{Type: "ValueError", Message: "n must be from 1 to 90"}
		}
		var a, b int64 = 0, 1
		for range in.N {
			a, b = b, a+b
		}
		return a, nil
	})

// solve makes the model solve a task in the sandbox.
func solve(ctx context.Context, w io.Writer, sb *sandbox.Sandbox, model *loop.Model, task string) error {
	a := &loop.Agent{Model: model, Run: agent.Params{
		Tools:  []agent.Tool{known},
		Guard:  &agent.Guard{},
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
