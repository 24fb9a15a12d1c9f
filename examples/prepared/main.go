// Command prepared builds a template of a Python project once, and runs each of the project's test
// files in a sandbox of its own, all at the same time. The next time it builds only the changed
// parts.
//
//	prepared -local path/to/project
//
// Without -local, E2B_API_KEY and the other E2B_ variables name the service to use.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/template"
)

const usage = `Usage: prepared [flags] PROJECT

PROJECT is the directory of a Python project. It has:
  tests/test_*.py    its tests for unittest; each file runs in a sandbox of its own

`

func main() {
	here := flag.Bool("local", false, "start a local cloud in this process instead of using a service")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := prepared(ctx, os.Stdout, os.Stderr, *here, flag.Arg(0))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "prepared:", err)
		os.Exit(1)
	}
}

// prepared writes the result of each test file to w, and the log of the build to log.
func prepared(ctx context.Context, w, log io.Writer, here bool, project string) (err error) {
	if project == "" {
		return errors.New("which project? See -h")
	}
	tests, err := fs.Glob(os.DirFS(project), "tests/test_*.py")
	if err != nil || len(tests) == 0 {
		return errors.Join(fmt.Errorf("%s has no tests/test_*.py", project), err)
	}
	var options []sandbox.ClientOption
	if here {
		var cloud *local.Cloud
		if cloud, err = local.Start(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, cloud.Close()) }()
		options = append(options, cloud.Option())
	}
	client, err := sandbox.NewClient(options...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()

	// A requirements.txt would be copied before the rest: then its packages are installed
	// again only when that file has changed.
	definition := template.FromBase().
		Workdir("project").
		Copy(".", ".", nil).
		Run("python3 -m compileall -q .", nil)
	built, err := template.Build(ctx, client.Templates, "prepared-example", definition, &template.BuildParams{
		Dir: project, Ignore: []string{"**/__pycache__", ".git"},
		Log: func(e api.BuildLogEntry) { fmt.Fprintln(log, e.Message) },
	})
	if err != nil {
		return err // a *template.BuildError names the step
	}
	return runAll(ctx, w, client, built.Name, tests)
}

// runAll runs each test file in its own sandbox.
func runAll(ctx context.Context, w io.Writer, client *sandbox.Client, name string, tests []string) error {
	var mu sync.Mutex // protects w and failed
	failed := 0
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for _, test := range tests {
		group.Go(func() error {
			began := time.Now()
			result, err := runOne(ctx, client, name, test)
			if err != nil {
				return fmt.Errorf("%s: %w", test, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if result.ExitCode == 0 {
				fmt.Fprintf(w, "ok      %s (%v)\n", test, time.Since(began).Round(time.Millisecond))
				return nil
			}
			failed++
			fmt.Fprintf(w, "FAILED  %s (%v)\n%s", test, time.Since(began).Round(time.Millisecond), result.Stderr)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d failed", failed, len(tests))
	}
	return nil
}

// runOne runs one test file in a new sandbox without a network. A failing test is a result, not
// an error.
func runOne(ctx context.Context, client *sandbox.Client, name, test string) (_ *sandbox.CommandResult, err error) {
	sb, err := client.Create(ctx, sandbox.WithTemplate(name), sandbox.WithInternet(false))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sb.Close()) }()
	result, err := sb.Commands.Run(ctx, `exec python3 -m unittest "$TEST"`, &sandbox.CommandParams{Envs: map[string]string{"TEST": test}})
	if exit, ok := errors.AsType[*sandbox.ExitError](err); ok {
		return exit.Result, nil
	}
	return result, err
}
