package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

func TestTutorial(t *testing.T) {
	sandboxtest.New(t).Setenv(t)
	for name, here := range map[string]bool{"local": true, "service": false} {
		t.Run(name, func(t *testing.T) {
			var shown strings.Builder
			if err := run(t.Context(), &shown, here); err != nil {
				t.Fatalf("%v\n%s", err, shown.String())
			}
			for _, part := range []string{
				"12 months, from 120.0 to 240.5\nError:\nNameError: name 'figure' is not defined (line 5)",
				"=> Dec was the best month, with 11.9% of the year; the mean was 168.33, the median 165.50\n",
				"GuardViolation: Forbidden function evaluation: open (line 1)",
				`=> 44 words in 5 sentences; the most frequent is "sandbox"`,
				"GuardViolation: Maximum number of 1000000 iterations in While loop exceeded",
				"1337 is at 668 after 10 comparisons",
				"=> found at 668 after 10 comparisons\n",
			} {
				if !strings.Contains(shown.String(), part) {
					t.Errorf("no %q in what it shows:\n%s", part, shown.String())
				}
			}
		})
	}
}

func TestTasks(t *testing.T) {
	t.Parallel()
	sb := sandboxtest.New(t).Create(t)
	t.Run("sales", func(t *testing.T) {
		got, err := solve[salesFigures](t.Context(), t.Output(), sb, sales)
		want := salesFigures{Mean: 168.33, Median: 165.5, Deviation: 34.82, Growth: 1.0042, Best: "Dec", Share: 240.5 / 2020}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	})
	t.Run("text", func(t *testing.T) {
		got, err := solve[textStatistics](t.Context(), t.Output(), sb, text)
		if diff := cmp.Diff(textStatistics{44, 5, []string{"sandbox", "code", "sand"}}, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	})
	t.Run("search", func(t *testing.T) {
		got, err := solve[position](t.Context(), t.Output(), sb, search)
		if diff := cmp.Diff(position{668, 10}, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	})
}

// TestSafeguards checks that every task runs under a guard and with a limit of its steps.
func TestSafeguards(t *testing.T) {
	t.Parallel()
	sb := sandboxtest.New(t).Create(t)
	for most, list := range map[int][]task{8: {sales}, 6: {text, search}} {
		for _, task := range list {
			run, err := task.begin(t.Context(), sb)
			must.Do(t, err)
			for n := 1; n <= most; n++ {
				step, err := run.Exec(t.Context(), "import subprocess")
				if err != nil || len(step.Violations) != 1 || step.Violations[0].Name != "subprocess" {
					t.Errorf("%s, step %d: %+v, %v", task.name, n, step, err)
				}
			}
			if _, err := run.Exec(t.Context(), "1"); !errors.Is(err, agent.ErrStepLimit) {
				t.Errorf("%s has more than %d steps: %v", task.name, most, err)
			}
			if err := run.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	// numpy belongs to the preset of one of the tasks.
	for name, allowed := range map[string]bool{"sales": true, "search": false} {
		run, err := map[string]task{"sales": sales, "search": search}[name].begin(t.Context(), sb)
		must.Do(t, err)
		if step, err := run.Exec(t.Context(), "import numpy.random"); err != nil || (len(step.Violations) == 0) != allowed {
			t.Errorf("%s: %+v, %v", name, step, err)
		}
		if err := run.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestNoAnswer(t *testing.T) {
	t.Parallel()
	if _, err := solve[int](t.Context(), t.Output(), sandboxtest.New(t).Create(t), task{name: "none"}); err == nil || !strings.Contains(err.Error(), "no final answer") {
		t.Error(err)
	}
}
