// Command resume works in a sandbox that may end at any time. Every few epochs it saves the state
// of its run to a file. With that file, another process can continue the work in another sandbox.
//
//	resume -local -epochs 30 -state run.state
//	resume -local -epochs 60 -state run.state      does 30 more
//
// It fits a line to points by gradient descent. The points are a pandas table, the line is a
// numpy array.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/state"
)

//go:embed epochs.py
var epochs string

func main() {
	here := flag.Bool("local", false, "start a local cloud in this process instead of using a service")
	goal := flag.Int("epochs", 30, "how many `epochs` to have done at the end")
	file := flag.String("state", "run.state", "`file` to continue from, if it is there, and to save to")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := resume(ctx, *here, *file, *goal)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "resume:", err)
		os.Exit(1)
	}
}

func resume(ctx context.Context, here bool, file string, goal int) (err error) {
	st, err := load(file)
	if err != nil {
		return err
	}
	var options []sandbox.CreateOption
	if here {
		var cloud *local.Cloud
		if cloud, err = local.Start(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, cloud.Close()) }()
		options = append(options, cloud.Option())
	}
	return sandbox.Use(ctx, func(ctx context.Context, sb *sandbox.Sandbox) error {
		return fit(ctx, os.Stdout, sb, st, goal, func() error { return save(file, st) })
	}, options...)
}

// fit runs epochs in groups of ten until the total number of epochs reaches goal, and saves after
// each group.
func fit(ctx context.Context, w io.Writer, sb *sandbox.Sandbox, st *state.State, goal int, save func() error) (err error) {
	if err := st.Set("goal", goal); err != nil {
		return err
	}
	run, err := agent.Begin(ctx, sb, &agent.Params{State: st, Stdout: w})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, run.Close()) }()
	for {
		var done int
		if err := st.Get("done", &done); err != nil || done >= goal {
			return err
		}
		step, err := run.Exec(ctx, epochs)
		if err != nil {
			return err
		}
		if step.Error != nil {
			return step.Error
		}
		// The variables that the code changed come back: the line, the losses and
		// the counter. The points are not sent again.
		if err := run.Pull(ctx, st); err != nil {
			return err
		}
		if err := save(); err != nil {
			return err
		}
	}
}
