//go:build linux

package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"regexp"
)

// Bounds of repeats. A failed test is repeated alone after all other tests have run, because a busy
// machine must not make a suite red. Two kinds of failures are never repeated: failures that a busy
// machine cannot cause, and failures that must not happen even once.
const (
	mostRepeated = 5 // the maximum number of failed tests that are repeated; if more failed, something is wrong
	repeats      = 2
)

// failure is a test that failed, or a package that failed outside of its tests.
type failure struct {
	job    job
	test   string // the name of the test; "": the package itself failed
	reason string // the reason for not repeating the test, or the result of the repeats; "" before the repeats
	output string // the output of the first failure
}

// String returns the name of the failed test or package.
func (f failure) String() string {
	name := f.job.pkg.name
	if f.test != "" {
		name += "." + f.test
	}
	if f.job.ordinary {
		name += " as an ordinary user"
	}
	return name
}

var (
	panicked = regexp.MustCompile(`(?m)^\s*(?:[\w.-]+\.go:\d+: )?(?:panic: |fatal error: )`)
	stack    = regexp.MustCompile(`(?m)^\s*goroutine \d+ .*\[`)
	leaked   = regexp.MustCompile(`goleak: |found unexpected goroutines`)
)

// final returns the reason why the failures of a job stay red. If the failed tests may be repeated,
// it returns "".
func (o *outcome) final() string {
	said := o.rest.String()
	for _, t := range o.tests {
		if t.result == "fail" || t.result == "" { // a test that panics does not end
			said += t.output.String()
		}
	}
	switch {
	case o.race:
		return "the race detector found something"
	case leaked.MatchString(said):
		return "goroutines were left"
	case panicked.MatchString(said) && stack.MatchString(said):
		return "a panic"
	case o.bad != nil:
		return "it ended badly: " + o.bad.Error()
	case len(o.running()) > 0:
		return fmt.Sprintf("it ended while tests were running: %v", o.running())
	case len(o.failed()) == 0:
		return "it failed, and none of its tests did"
	case !o.saysFailed:
		return "it ended as if no test had failed"
	}
	return ""
}

// judge returns the failures in the outcome of a job.
func (p plan) judge(o *outcome) (failures []failure) {
	if o.ok() {
		return nil
	}
	final := o.final()
	for _, t := range o.failed() {
		reason := final
		if reason == "" && p.isOnce(o.job.pkg.name, t.name) {
			reason = "a test of this is never repeated"
		}
		failures = append(failures, failure{o.job, t.name, reason, t.output.String()})
	}
	if final != "" {
		output := o.rest.String()
		for _, t := range o.tests {
			if t.result == "" || bytes.Contains(t.output.Bytes(), raceReport) {
				output += t.output.String()
			}
		}
		failures = append(failures, failure{o.job, "", final, output})
	}
	return failures
}

// decide repeats the failures that may be repeated. red contains the failures that stay red. flaky
// contains the failures that passed when they were repeated.
func (s *starter) decide(ctx context.Context, p plan, failures []failure, began func(failure, int)) (red, flaky []failure) {
	tests := 0
	for _, f := range failures {
		if f.test != "" {
			tests++
		}
	}
	for _, f := range failures {
		if f.reason == "" && tests > mostRepeated {
			f.reason = fmt.Sprintf("not repeated: %d tests failed, which is more than %d", tests, mostRepeated)
		}
		if f.reason == "" && s.passesAlone(ctx, p, &f, began) {
			flaky = append(flaky, f)
			continue
		}
		red = append(red, f)
	}
	return red, flaky
}

// passesAlone runs a test alone, at most repeats times, and reports whether it passed. It stops at
// the first pass, and at the first result after which the test must not be repeated.
func (s *starter) passesAlone(ctx context.Context, p plan, f *failure, began func(failure, int)) bool {
	for n := range repeats {
		if ctx.Err() != nil {
			f.reason = cmp.Or(f.reason, "interrupted")
			return false
		}
		began(*f, n+1)
		alone := f.job
		alone.run = "^" + f.test + "$"
		o := s.run(ctx, alone, func(*test) {})
		if o.ok() && o.count("pass") == 1 {
			f.reason = fmt.Sprintf("passed alone, at repeat %d", n+1)
			return true
		}
		f.reason = "failed again, alone"
		if o.ok() {
			f.reason = "did not run again, alone"
			return false
		}
		if final := o.final(); final != "" {
			f.reason = "repeated alone: " + final
			for _, again := range p.judge(o) {
				f.output += "\n--- repeated alone\n" + again.output
			}
			return false
		}
	}
	return false
}
