package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/state"
)

//go:embed snippets/*.py
var files embed.FS

// task is a task of an agent.
type task struct {
	name     string // the name of the snippets
	prompt   string
	state    map[string]any // the variables of the code
	guard    agent.Guard
	maxSteps int
}

// sales is a task of data analysis. It needs steps to look at the data, to compute, and to format
// the result.
var sales = task{
	name:   "sales",
	prompt: "Find mean, median, deviation and growth of the monthly sales, and the best month with its share of the year.",
	state: map[string]any{
		"months": []string{"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"},
		"sales":  []float64{120, 135.5, 128, 150, 162, 158.5, 171, 169, 180, 195.5, 210, 240.5},
	},
	guard:    agent.Guard{Presets: []agent.Preset{agent.DataAnalysis}},
	maxSteps: 8,
}

// salesFigures is the answer to sales.
type salesFigures struct {
	Mean      float64 `py:"mean"`
	Median    float64 `py:"median"`
	Deviation float64 `py:"deviation"`
	Growth    float64 `py:"growth"` // the growth from the first to the last month; 1 means 100%
	Best      string  `py:"best"`
	Share     float64 `py:"share"`
}

var text = task{
	name:   "text",
	prompt: "Count the words and sentences of the article, and find its three most frequent words of more than three letters.",
	state: map[string]any{
		"article": `A sandbox is a box of sand. Children build castles in the sandbox, and the sand stays in the box.
Code that nobody has read is like water: it finds every hole. Is the sandbox tight? Then the code may do what it likes.`,
	},
	guard:    agent.Guard{Presets: []agent.Preset{agent.TextProcessing}},
	maxSteps: 6,
}

// textStatistics is the answer to text.
type textStatistics struct {
	Words     int      `py:"words"`
	Sentences int      `py:"sentences"`
	Frequent  []string `py:"frequent"`
}

// search is a task that needs no special guard: the zero guard allows the modules and calls that
// plain algorithms need.
var search = task{
	name:     "search",
	prompt:   "Write a binary search, and find the index of target in numbers and how many comparisons it took.",
	state:    map[string]any{"numbers": odd(1000), "target": 1337},
	maxSteps: 6,
}

// position is the answer to search.
type position struct {
	Index       int `py:"index"`
	Comparisons int `py:"comparisons"`
}

// odd returns the first n odd numbers.
func odd(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = 2*i + 1
	}
	return list
}

// snippets returns the code that a model would answer to the task and to the observations of its
// steps.
func (t task) snippets() ([]string, error) {
	names, err := fs.Glob(files, "snippets/"+t.name+"-*.py")
	if err != nil {
		return nil, err
	}
	list := make([]string, len(names))
	for i, name := range names {
		code, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		list[i] = string(code)
	}
	return list, nil
}

// solve runs the task's snippets until one gives the final answer.
func solve[Answer any](ctx context.Context, w io.Writer, sb *sandbox.Sandbox, t task) (answer Answer, err error) {
	snippets, err := t.snippets()
	if err != nil {
		return answer, err
	}
	run, err := t.begin(ctx, sb)
	if err != nil {
		return answer, err
	}
	defer func() { err = errors.Join(err, run.Close()) }()
	fmt.Fprintf(w, "# %s\n", t.prompt)
	for _, code := range snippets {
		step, err := run.Exec(ctx, code)
		if err != nil {
			return answer, err
		}
		fmt.Fprintf(w, "--- step %d\n%s--- gave\n%s", step.N, code, step.Observation())
		if step.Final {
			return answer, step.Value.Decode(&answer)
		}
	}
	return answer, fmt.Errorf("task %q: no final answer", t.name)
}

// begin starts a run with the task's safeguards.
func (t task) begin(ctx context.Context, sb *sandbox.Sandbox) (*agent.Run, error) {
	st := state.New()
	for name, value := range t.state {
		if err := st.Set(name, value); err != nil {
			return nil, err
		}
	}
	return agent.Begin(ctx, sb, &agent.Params{
		State: st, Guard: &t.guard, Prompt: t.prompt,
		Limits: agent.Limits{MaxSteps: t.maxSteps, StepTimeout: time.Minute, MaxOutputBytes: 5000},
	})
}
