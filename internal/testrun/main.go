//go:build linux

// Testrun runs the tests of this module. It builds the tests of each package once, and runs many
// packages at the same time. The tests of root and the tests of the ordinary user share one
// schedule. If a test fails, Testrun repeats it alone before it reports that the suite is red. It
// does not repeat a failure that must not happen even once. See the Makefile and CONTRIBUTING.md.
//
//	testrun [flags] [packages]           test
//	testrun times                        print the slowest tests of the last run
//	testrun stress [flags] [packages]    repeat each test under load
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == spinCommand {
		spin(os.Stdin)
		return
	}
	if len(os.Args) > 2 && os.Args[1] == reapCommand {
		os.Exit(reap(os.Stderr, os.Args[2:], graceOfOrphans))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	o, err := defaults(ctx)
	if err != nil {
		return err
	}
	command := ""
	if len(arguments) > 0 && (arguments[0] == "times" || arguments[0] == "stress") {
		command, arguments = arguments[0], arguments[1:]
	}
	flags := flag.NewFlagSet("testrun", flag.ContinueOnError)
	flags.StringVar(&o.dir, "dir", o.dir, "where binaries and times are")
	flags.StringVar(&o.keep, "keep", o.keep, "where the list of flaky tests and the tallies of stress are")
	slice := 25 * time.Minute
	switch command {
	case "stress":
		flags.DurationVar(&slice, "slice", slice, "how long to go on; the next time goes on there")
	case "":
		flags.StringVar(&o.run, "run", "", "which tests, as for go test")
		flags.BoolVar(&o.short, "short", false, "as for go test")
		flags.IntVar(&o.count, "count", 1, "how often to run each test")
		flags.BoolVar(&o.allRace, "allrace", false, "use the race detector in all packages")
		flags.BoolVar(&o.ordinary, "ordinary", false, "only what root repeats as an ordinary user")
		flags.IntVar(&o.atOnce, "p", o.atOnce, "how many packages to test at once")
	}
	if err := flags.Parse(arguments); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	o.patterns = flags.Args()
	for _, dir := range []*string{&o.dir, &o.keep} { // the tests run elsewhere
		if *dir, err = filepath.Abs(*dir); err != nil {
			return err
		}
	}
	switch command {
	case "times":
		return printTimes(os.Stdout, filepath.Join(o.dir, timesFile))
	case "stress":
		return runStress(ctx, os.Stdout, module, o, slice)
	}
	if len(o.patterns) == 0 {
		o.patterns = []string{"./..."}
	}
	return runSuite(ctx, os.Stdout, module, o)
}

// defaults returns the options that apply if no flag is set.
func defaults(ctx context.Context) (o options, err error) {
	if o.root, err = checkout(ctx); err != nil {
		return o, err
	}
	if o.keep, err = keepDir(); err != nil {
		return o, err
	}
	o.dir = filepath.Join(o.root, ".tmp", "tests")
	o.count, o.atOnce, o.limit = 1, 2*runtime.NumCPU(), 30*time.Minute
	o.ci = os.Getenv("CI") != ""
	return o, nil
}
