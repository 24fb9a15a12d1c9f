//go:build linux

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"
)

// times contains the durations of the packages and tests of a run, for make test-times.
type times struct {
	Ended    time.Time
	Patterns []string
	Packages []packageTime
	Tests    []testTime
}

type packageTime struct {
	Name      string
	Wall, CPU float64 // in seconds
}

type testTime struct {
	Name string
	// the time of the test, in seconds, without the time in which a parallel test waited for its
	// turn
	Wall float64
}

// slowest is the number of packages, and also the number of tests, that make test-times prints.
const slowest = 30

func writeTimes(path string, patterns []string, outcomes []*outcome) error {
	t := times{Ended: time.Now(), Patterns: patterns}
	for _, o := range outcomes {
		t.Packages = append(t.Packages, packageTime{o.job.String(), o.wall.Seconds(), o.cpu.Seconds()})
		for _, test := range o.tests {
			t.Tests = append(t.Tests, testTime{failure{job: o.job, test: test.name}.String(), test.seconds})
		}
	}
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

// printTimes prints the slowest packages and tests of the last run.
func printTimes(w io.Writer, path string) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("there was no run of the tests here yet: make test first")
	}
	var t times
	if err := errors.Join(err, json.Unmarshal(text, &t)); err != nil {
		return fmt.Errorf("the times of the last run: %w", err)
	}
	fmt.Fprintf(w, "the run of %v that ended on %s\n\n wall s  packages\n", t.Patterns, t.Ended.Format(time.DateTime))
	slices.SortFunc(t.Packages, func(a, b packageTime) int { return cmp.Compare(b.Wall, a.Wall) })
	for _, p := range t.Packages[:min(slowest, len(t.Packages))] {
		fmt.Fprintf(w, "%7.1f  %s\n", p.Wall, p.Name)
	}
	fmt.Fprintf(w, "\n  CPU s  packages\n")
	slices.SortFunc(t.Packages, func(a, b packageTime) int { return cmp.Compare(b.CPU, a.CPU) })
	for _, p := range t.Packages[:min(slowest, len(t.Packages))] {
		fmt.Fprintf(w, "%7.1f  %s\n", p.CPU, p.Name)
	}
	fmt.Fprintf(w, "\n wall s  tests\n")
	slices.SortFunc(t.Tests, func(a, b testTime) int { return cmp.Compare(b.Wall, a.Wall) })
	for _, test := range t.Tests[:min(slowest, len(t.Tests))] {
		fmt.Fprintf(w, "%7.1f  %s\n", test.Wall, test.Name)
	}
	return nil
}
