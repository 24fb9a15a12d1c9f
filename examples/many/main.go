// Command many runs the lines of standard input as Python, each in a sandbox of its own, and prints
// each result when the line has ended. It runs several lines at the same time, up to a limit.
//
//	seq 100 | sed 's/$/ ** 2/' | many -local -at-once 10
//
// Without -local, E2B_API_KEY and the other E2B_ variables name the service to use.
package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

func main() {
	here := flag.Bool("local", false, "start a local cloud in this process instead of using a service")
	atOnce := flag.Int("at-once", 10, "sandboxes at the same time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := start(ctx, *here, *atOnce, os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "many:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, here bool, atOnce int, lines io.Reader, out io.Writer) (err error) {
	var options []sandbox.ClientOption
	if here {
		cloud, err := local.Start(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, cloud.Close()) }()
		options = append(options, cloud.Option())
	}
	client, err := sandbox.NewClient(options...)
	if err != nil {
		return err
	}
	return many(ctx, client, atOnce, lines, out)
}

// many runs each line. Its error reports lines that did not run. A line that raised an
// exception did run.
func many(ctx context.Context, client *sandbox.Client, atOnce int, lines io.Reader, out io.Writer) error {
	if atOnce < 1 {
		return fmt.Errorf("%d at once: want one at least", atOnce)
	}
	var (
		places = make(chan struct{}, atOnce)
		all    sync.WaitGroup
		mu     sync.Mutex // protects failed and out
		failed []error
	)
	scanner := bufio.NewScanner(lines)
	for scanner.Scan() {
		line := scanner.Text()
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			text, err := run(ctx, client, line)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", line, err))
				return
			}
			fmt.Fprintf(out, "%s: %s\n", line, text)
		})
	}
	all.Wait()
	return errors.Join(append(failed, scanner.Err())...)
}

// run returns the value of a line, or the exception that it raised.
func run(ctx context.Context, client *sandbox.Client, line string) (_ string, err error) {
	sb, err := create(ctx, client)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, sb.Close()) }()
	execution, err := sb.RunCode(ctx, line, nil)
	if raised, ok := errors.AsType[*sandbox.ExecutionError](err); ok {
		return raised.Name + ": " + raised.Value, nil
	}
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(execution.Stdout + execution.Text()), nil
}

// create creates a sandbox. If the account or the machine has no room for another one, it waits and
// tries again. It waits for the time that the service requests, or for a second if the service
// requests none.
func create(ctx context.Context, client *sandbox.Client) (*sandbox.Sandbox, error) {
	for {
		sb, err := client.Create(ctx)
		if !errors.Is(err, sandbox.ErrRateLimited) {
			return sb, err
		}
		wait := time.Second
		if refused, ok := errors.AsType[*sandbox.Error](err); ok {
			wait = cmp.Or(refused.RetryAfter, wait)
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), err)
		case <-time.After(wait):
		}
	}
}
