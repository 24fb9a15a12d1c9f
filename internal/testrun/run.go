//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// options are the options of a run.
type options struct {
	patterns []string
	run      string
	short    bool
	count    int
	atOnce   int
	limit    time.Duration
	allRace  bool   // all packages are tested with the race detector
	ordinary bool   // only the ordinary user's part is run
	root     string // the root of the checkout
	dir      string // the directory for binaries and times
	keep     string // the directory for files that outlive the checkout
	ci       bool
}

// full reports whether a run covers all tests. Only such a run uses the ledger.
func (o options) full() bool {
	return o.run == "" && !o.short && !o.ordinary && o.count == 1 && slices.Equal(o.patterns, []string{"./..."})
}

// flags returns the flags for the binaries.
func (o options) flags() (flags []string) {
	if o.short {
		flags = append(flags, "-test.short")
	}
	if o.count != 1 {
		flags = append(flags, "-test.count="+strconv.Itoa(o.count))
	}
	return flags
}

// errRed is the error of a run that was not green.
var errRed = errors.New("the tests failed")

// suite is one run of the tests of a plan.
type suite struct {
	options
	plan    plan
	report  *report
	starter *starter

	mu       sync.Mutex
	outcomes []*outcome
	failures []failure
	building time.Duration // the time that processors took to build the binaries
}

// runSuite builds the tests and runs them. If failures stay red, the error is errRed.
func runSuite(ctx context.Context, w io.Writer, p plan, o options) error {
	start := time.Now()
	s := &suite{options: o, plan: p, report: &report{w: w}}
	packages, err := s.choose(ctx)
	if err != nil {
		return err
	}
	if s.starter, err = newStarter(ctx, o); err != nil {
		return err
	}
	return s.execute(ctx, start, func(ctx context.Context, ready chan<- []job) error { return s.prepare(ctx, packages, ready) })
}

// execute runs the jobs that prepare sends to its channel, and then judges their outcomes.
func (s *suite) execute(ctx context.Context, start time.Time, prepare func(context.Context, chan<- []job) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ready := make(chan []job)
	go func() {
		defer close(ready)
		if err := prepare(ctx, ready); err != nil {
			stop(err)
		}
	}()
	rank := func(j job) int { return s.plan.rank(j.pkg.name) }
	schedule(ctx, s.atOnce, rank, ready, func(j job) { s.runJob(ctx, j) })
	for range ready { // until prepare has ended, too
	}
	if a := s.starter.account; a != nil {
		defer func() {
			if err := a.clean(context.WithoutCancel(ctx)); err != nil {
				s.report.printf("%v\n", err)
			}
		}()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	red, flaky := s.starter.decide(ctx, s.plan, s.failures, func(f failure, n int) { s.report.printf("repeating %s alone, %d of %d at most\n", f, n, repeats) })
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return s.conclude(ctx, start, red, flaky)
}

// choose returns the packages to test. If a list of the plan is wrong, it returns an error.
func (s *suite) choose(ctx context.Context) ([]pkg, error) {
	all, err := listPackages(ctx, []string{"./..."})
	if err != nil {
		return nil, err
	}
	if err := s.plan.check(all); err != nil {
		return nil, err
	}
	if slices.Equal(s.patterns, []string{"./..."}) {
		return all, nil
	}
	return listPackages(ctx, s.patterns)
}

// newStarter returns a starter. It finds the programs that are necessary to start tests.
func newStarter(ctx context.Context, o options) (*starter, error) {
	test2json, err := exec.CommandContext(ctx, "go", "tool", "-n", "test2json").Output()
	if err != nil {
		return nil, fmt.Errorf("go tool test2json: %w", err)
	}
	goroot, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return &starter{
		self: self, test2json: strings.TrimSpace(string(test2json)), goroot: strings.TrimSpace(string(goroot)),
		limit: o.limit, flags: o.flags(),
	}, nil
}

// prepare builds the binaries, and sends the jobs of each binary to ready as soon as the binary is
// built. So the first binaries run while others are built.
func (s *suite) prepare(ctx context.Context, packages []pkg, ready chan<- []job) error {
	send := func(jobs []job) {
		select {
		case ready <- jobs:
		case <-ctx.Done():
		}
	}
	compiler, err := hasCompiler(s.report, s.ci)
	if err != nil {
		return err
	}
	account, err := canBeOrdinary(s.report, s.ci)
	if err != nil {
		return err
	}
	var plain, race, both, split []pkg // both: also built without the detector; split: only for sequential tests
	for _, p := range packages {
		_, repeated := s.plan.ordinary[p.name]
		repeated = repeated && account
		if compiler && (s.allRace || !covers(s.plan.plain, p.name)) {
			race = append(race, p)
			_, sequential := s.plan.sequential[p.name]
			if sequential = sequential && !s.allRace; sequential {
				split = append(split, p)
			}
			if repeated || sequential {
				both = append(both, p)
			}
		} else {
			plain = append(plain, p)
		}
	}
	binaries, err := s.build(ctx, false, append(slices.Clip(plain), both...))
	if err != nil {
		return err
	}
	skips := map[string]string{}
	if !s.ordinary {
		var sequential []job
		if sequential, skips, err = s.sequentialJobs(split, binaries); err != nil {
			return err
		}
		send(append(s.jobs(binaries, plain, false), sequential...))
	}
	var more sync.WaitGroup
	var accountErr error
	if account {
		more.Go(func() {
			var jobs []job
			if jobs, accountErr = s.ordinaryJobs(ctx, packages, binaries); accountErr == nil {
				send(jobs)
			}
		})
	}
	if !s.ordinary {
		var detecting map[string]string
		if detecting, err = s.build(ctx, true, race); err == nil {
			jobs := s.jobs(detecting, race, true)
			for i := range jobs {
				jobs[i].skip = skips[jobs[i].pkg.name]
			}
			send(jobs)
		}
	}
	more.Wait()
	return errors.Join(err, accountErr)
}

func (s *suite) build(ctx context.Context, race bool, packages []pkg) (map[string]string, error) {
	dir := filepath.Join(s.dir, "plain")
	if race {
		dir = filepath.Join(s.dir, "race")
	}
	binaries, cpu, err := build(ctx, s.report, dir, race, packages)
	s.building += cpu
	return binaries, err
}

func (s *suite) jobs(binaries map[string]string, packages []pkg, race bool) (jobs []job) {
	for _, p := range packages {
		jobs = append(jobs, job{pkg: p, binary: binaries[p.name], race: race, run: s.run})
	}
	return jobs
}

// sequentialJobs returns the jobs of packages' sequential tests. For each package, skips has the tests that
// its job with the race detector leaves out, in the form of the flag -skip of go test.
func (s *suite) sequentialJobs(packages []pkg, binaries map[string]string) (jobs []job, skips map[string]string, err error) {
	skips = map[string]string{}
	for _, p := range packages {
		tests, err := s.plan.sequentialTests(p)
		if err != nil {
			return nil, nil, err
		}
		skips[p.name] = "^(" + strings.Join(tests, "|") + ")$"
		run, some, err := runOf(tests, s.run)
		if err != nil {
			return nil, nil, err
		}
		if some {
			jobs = append(jobs, job{pkg: p, binary: binaries[p.name], sequential: true, run: run})
		}
	}
	return jobs, skips, nil
}

// ordinaryJobs returns the jobs of the ordinary user. It prepares everything that these jobs need.
func (s *suite) ordinaryJobs(ctx context.Context, packages []pkg, binaries map[string]string) (jobs []job, err error) {
	var names []string
	for _, p := range packages {
		if _, repeated := s.plan.ordinary[p.name]; !repeated {
			continue
		}
		tests, err := s.plan.ordinaryTests(p)
		if err != nil {
			return nil, err
		}
		run, some, err := runOf(tests, s.run)
		if err != nil {
			return nil, err
		}
		if !some {
			continue
		}
		jobs = append(jobs, job{pkg: p, binary: binaries[p.name], ordinary: true, run: run})
		name, err := filepath.Rel(filepath.Join(s.dir, "plain"), binaries[p.name])
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	if len(jobs) > 0 {
		s.starter.account, err = prepareAccount(ctx, s.report, s.root, filepath.Join(s.dir, "plain"), names)
	}
	return jobs, err
}

// runJob runs a job and records its outcome.
func (s *suite) runJob(ctx context.Context, j job) {
	o := s.starter.run(ctx, j, func(t *test) { s.report.failed(j, t) })
	if ctx.Err() != nil {
		s.report.interrupted(o)
		return
	}
	failures := s.plan.judge(o)
	s.report.ended(o, failures)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outcomes = append(s.outcomes, o)
	s.failures = append(s.failures, failures...)
}

// conclude prints the result of the run.
func (s *suite) conclude(ctx context.Context, start time.Time, red, flaky []failure) error {
	outcomes := sorted(s.outcomes)
	err := writeTimes(filepath.Join(s.dir, timesFile), s.patterns, outcomes)
	if s.full() && s.ci {
		again, first, ledgerErr := ledger{path: filepath.Join(s.keep, "flaky.jsonl"), root: s.root}.judge(ctx, flaky)
		red, flaky, err = append(red, again...), first, errors.Join(err, ledgerErr)
	}
	s.report.skips(outcomes)
	s.report.again(append(slices.Clip(red), flaky...))
	s.report.totals(outcomes, len(flaky), time.Since(start), s.building)
	s.report.verdict(red, flaky)
	if len(red) > 0 {
		err = errors.Join(err, errRed)
	}
	return err
}

// timesFile is the name of the file with the times of the last run.
const timesFile = "times.json"

// checkout returns the root of the current module.
func checkout(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("go list -m: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// keepDir returns the directory of files that outlive a checkout.
func keepDir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "e2bctl", "testrun"), nil
}
