// Command tutorial solves three tasks step by step, as an agent does, with prepared snippets in
// place of a model's answers. The tasks are sales figures, statistics of a text, and a binary
// search. In each task the first step fails, the error message gives the reason, and the next step
// corrects the mistake.
//
//	tutorial -local            in a local cloud, started in this process
//	tutorial                   on the service named by the E2B_ variables (E2B_API_KEY …)
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

func main() {
	here := flag.Bool("local", false, "start a local cloud in this process instead of using a service")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, *here)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "tutorial:", err)
		os.Exit(1)
	}
}

// run solves the tasks one after another in one sandbox.
func run(ctx context.Context, w io.Writer, here bool) (err error) {
	options := []sandbox.CreateOption{sandbox.WithInternet(false)}
	if here {
		var cloud *local.Cloud
		if cloud, err = local.Start(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, cloud.Close()) }()
		options = append(options, cloud.Option())
	}
	return sandbox.Use(ctx, func(ctx context.Context, sb *sandbox.Sandbox) error {
		figures, err := solve[salesFigures](ctx, w, sb, sales)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "=> %s was the best month, with %.1f%% of the year; the mean was %.2f, the median %.2f\n\n",
			figures.Best, 100*figures.Share, figures.Mean, figures.Median)
		statistics, err := solve[textStatistics](ctx, w, sb, text)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "=> %d words in %d sentences; the most frequent is %q\n\n", statistics.Words, statistics.Sentences, statistics.Frequent[0])
		hit, err := solve[position](ctx, w, sb, search)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "=> found at %d after %d comparisons\n", hit.Index, hit.Comparisons)
		return nil
	}, options...)
}
