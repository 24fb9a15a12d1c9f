// Command multiagent makes a team of agents solve a task. The manager's code calls a programmer
// and a checker as functions. The model's key stays in this process: the sandboxes receive only
// the task and the agents' answers to each other.
//
//	multiagent -local
//	export OPENAI_API_KEY=…
//	multiagent -local -model NAME 'How many primes are there below a million?'
//
// Without a model it solves a task of its own, with scripted answers. The model can be at any
// endpoint that speaks OpenAI's chat completions protocol: OPENAI_BASE_URL and OPENAI_MODEL are
// the defaults of -url and -model. Without -local, E2B_API_KEY and the other E2B_ variables
// name the service to use.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/e2bctl/e2bctl/examples/codeagent/loop"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

const fibonacci = "What is the 20th Fibonacci number? The first and the second are 1."

func main() {
	model := loop.ModelFlag(flag.CommandLine)
	here := flag.Bool("local", false, "start a local cloud in this process instead of using a service")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	task := strings.Join(flag.Args(), " ")
	err := model.UseScript(os.Stderr, roles, task)
	if err == nil {
		err = run(ctx, os.Stdout, model, *here, cmp.Or(task, fibonacci))
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "multiagent:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer, model *loop.Model, here bool, task string) (err error) {
	options := []sandbox.CreateOption{sandbox.WithInternet(false), sandbox.WithPrivateTraffic()}
	if here {
		var cloud *local.Cloud
		if cloud, err = local.Start(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, cloud.Close()) }()
		options = append(options, cloud.Option())
	}
	return sandbox.Use(ctx, func(ctx context.Context, shared *sandbox.Sandbox) error {
		return sandbox.Use(ctx, func(ctx context.Context, apart *sandbox.Sandbox) error {
			t := &team{model: model, log: log.New(w, "", 0), shared: shared, apart: apart}
			answer, err := t.solve(ctx, task)
			if err != nil {
				return err
			}
			fmt.Fprintln(w, "=>", text(answer))
			return nil
		}, options...)
	}, options...)
}
