//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// report prints the events of a run.
type report struct {
	mu sync.Mutex
	w  io.Writer
}

func (r *report) printf(format string, arguments ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.w, format, arguments...)
}

// Write writes the output of other programs between the lines of the report.
func (r *report) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.w.Write(p)
}

// failed prints the output of a test that has just failed.
func (r *report) failed(j job, t *test) {
	r.printf("--- %s\n%s", failure{job: j, test: t.name}, t.output.String())
}

// ended prints the line of a package. If the package failed, ended also prints the rest of its
// output.
func (r *report) ended(o *outcome, failures []failure) {
	for _, f := range failures {
		if f.test == "" {
			r.printf("--- %s: %s\n%s", f, f.reason, withEnd(f.output))
		}
	}
	result, more := "ok  ", ""
	if len(failures) > 0 {
		result = "FAIL"
	} else if len(o.tests) == 0 {
		more = " (no tests to run)"
	}
	r.printf("%s %7.1fs %s%s\n", result, o.wall.Seconds(), o.job, more)
}

// interrupted prints the tests that were still running when a run ended early.
func (r *report) interrupted(o *outcome) {
	r.printf("stopped after %.1fs: %s: %s\n", o.wall.Seconds(), o.job, strings.Join(o.running(), " "))
}

// skips prints the skipped tests, with one line for each reason of a package.
func (r *report) skips(outcomes []*outcome) {
	for _, o := range outcomes {
		var reasons []string
		tests := map[string][]string{}
		for _, s := range o.skips {
			if tests[s.reason] == nil {
				reasons = append(reasons, s.reason)
			}
			tests[s.reason] = append(tests[s.reason], s.test)
		}
		for _, reason := range reasons {
			r.printf("skipped %s: %s: %s\n", o.job, strings.Join(slices.Sorted(slices.Values(tests[reason])), " "), reason)
		}
	}
}

// again prints the output of the failed tests once more, so that it is at the end of a long log.
func (r *report) again(failures []failure) {
	for _, f := range failures {
		r.printf("\n=== %s: %s\n%s", f, f.reason, withEnd(f.output))
	}
}

// verdict prints the last lines of the report: the red and the flaky failures.
func (r *report) verdict(red, flaky []failure) {
	for _, f := range red {
		r.printf("FAIL %s: %s\n", f, f.reason)
	}
	for _, f := range flaky {
		r.printf("FLAKY %s: %s\n", f, f.reason)
	}
}

// totals prints the total numbers and times of a run.
func (r *report) totals(outcomes []*outcome, flaky int, wall, building time.Duration) {
	var passed, failed, skipped int
	cpu := building
	for _, o := range outcomes {
		passed, failed, skipped = passed+o.count("pass"), failed+o.count("fail"), skipped+o.count("skip")
		cpu += o.cpu
	}
	r.printf("passed %d, failed %d (flaky %d), skipped %d, in %v; the processors took %v, %v of it to build\n",
		passed, failed, flaky, skipped, wall.Round(time.Second), cpu.Round(time.Second), building.Round(time.Second))
}

// sorted returns the outcomes in the order of the names of their jobs.
func sorted(outcomes []*outcome) []*outcome {
	return slices.SortedFunc(slices.Values(outcomes), func(a, b *outcome) int { return strings.Compare(a.job.String(), b.job.String()) })
}

// withEnd returns text with a line end at its end. It returns an empty text unchanged.
func withEnd(text string) string {
	if text == "" || strings.HasSuffix(text, "\n") {
		return text
	}
	return text + "\n"
}
