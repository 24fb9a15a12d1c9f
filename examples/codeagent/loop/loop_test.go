package loop_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/examples/codeagent/loop"
	"github.com/e2bctl/e2bctl/examples/codeagent/loop/modeltest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
	"github.com/e2bctl/e2bctl/state"
)

const key = "sk-0123456789abcdef"

// scripted returns a model that gives its answers in order, each only after it was told the
// result of the one before.
func scripted(t *testing.T, turns ...turn) *loop.Model {
	t.Helper()
	return modeltest.New(t, key, func(chat []loop.Message) string {
		n := modeltest.Turn(chat)
		if n >= len(turns) {
			t.Errorf("the model is asked once more: %q", chat[len(chat)-1].Content)
			return ""
		}
		for _, part := range turns[n].told {
			if got := chat[len(chat)-1].Content; !strings.Contains(got, part) {
				t.Errorf("before turn %d the model was not told %q, but %q", n, part, got)
			}
		}
		return turns[n].says
	})
}

type turn struct {
	told []string
	says string
}

// TestSolve has a model that makes every mistake once, is told so each time, and corrects it.
func TestSolve(t *testing.T) {
	t.Parallel()
	sb := sandboxtest.New(t).Create(t)
	st := state.New()
	must.Do(t, st.Set("cities", []string{"Oslo", "Rome"}))
	degrees := agent.MustTool("degrees", "Gives the temperature in a city.", func(_ context.Context, in struct{ City string }) (float64, error) {
		if in.City == "Atlantis" {
			return 0, fmt.Errorf("no such city; the request had the key %s", key)
		}
		return float64(len(in.City)) + 0.5, nil
	})
	model := scripted(t,
		turn{[]string{"Sum up"}, "The answer is 42."},
		turn{[]string{"no complete block"}, modeltest.Code("import os")},
		turn{[]string{"Import of os is not allowed", "functools"}, modeltest.Code("print('so far'); total")},
		turn{[]string{"so far", "NameError", "line 1"}, modeltest.Code("degrees('Atlantis')")},
		turn{[]string{"no such city; the request had the key [redacted]"}, modeltest.Code("while True: pass")},
		turn{[]string{"Maximum number of 1000000 iterations"}, modeltest.Code("total = sum(degrees(City=city) for city in cities)\ntotal")},
		turn{[]string{"Value of the last expression", "9.0"}, "```python\nfinal_answer({'total': total})\n```"},
	)
	var audit strings.Builder
	a := &loop.Agent{Model: model, Run: agent.Params{
		State: st, Tools: []agent.Tool{degrees}, Guard: &agent.Guard{Presets: []agent.Preset{agent.Utilities}, Allow: []string{"numpy.*"}},
		Audit: &audit,
	}}
	result, err := a.Solve(t.Context(), sb, "Sum up")
	must.Do(t, err)
	var answer struct {
		Total float64 `py:"total"`
	}
	if err := result.Answer.Decode(&answer); err != nil || answer.Total != 9 {
		t.Errorf("the answer is %v, %v, want 9 and no error", answer, err)
	}
	got := result.Metrics
	want := agent.Metrics{Steps: 6, Errors: 4, ToolCalls: 4, ToolErrors: 1, Tokens: 7 * modeltest.Tokens, CodeBytes: got.CodeBytes, Imports: got.Imports, Duration: got.Duration}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	for _, part := range []string{`"prompt":"Sum up"`, `"tokens":700`, `"status":"success"`, "[redacted]"} {
		if !strings.Contains(audit.String(), part) {
			t.Errorf("the audit has no %s:\n%s", part, audit.String())
		}
	}
	if strings.Contains(audit.String(), key) {
		t.Error("the key is in the audit")
	}
}

// TestPrompt checks that the first message names everything that the model can use.
func TestPrompt(t *testing.T) {
	t.Parallel()
	st := state.New()
	must.Do(t, st.Set("cities", []string{"Oslo"}))
	model := modeltest.New(t, key, func(chat []loop.Message) string {
		for _, part := range []string{
			"numpy.*", "functools", "unicodedata", "there: cities", "def degrees(City: str) -> float:\n    \"\"\"Gives", "Be brief.", "final_answer(",
		} {
			if !strings.Contains(chat[0].Content, part) {
				t.Errorf("%q is not in the prompt", part)
			}
		}
		if want := (loop.Message{Role: "user", Content: "Do"}); chat[0].Role != "system" || chat[1] != want {
			t.Errorf("%+v", chat)
		}
		return modeltest.Code("final_answer(None)")
	})
	a := &loop.Agent{Model: model, Instructions: "Be brief.", Run: agent.Params{
		State: st, Guard: &agent.Guard{Presets: []agent.Preset{agent.Utilities}, Allow: []string{"numpy.*"}},
		Tools: []agent.Tool{agent.MustTool("degrees", "Gives the temperature in a city.", func(context.Context, struct{ City string }) (float64, error) { return 0, nil })},
	}}
	if _, err := a.Solve(t.Context(), sandboxtest.New(t).Create(t), "Do"); err != nil {
		t.Error(err)
	}
}

// TestSolveAfterStepTimeout checks that the model can correct a step that takes too long,
// and that the variables stay.
func TestSolveAfterStepTimeout(t *testing.T) {
	t.Parallel()
	a := &loop.Agent{
		Model: scripted(t,
			turn{nil, modeltest.Code("x = 1\nprint('begun')\nimport time\nwhile True: time.sleep(1)")},
			turn{[]string{"begun", "took longer than"}, modeltest.Code("final_answer(x)")}),
		Run: agent.Params{Limits: agent.Limits{StepTimeout: 5 * time.Second}},
	}
	result, err := a.Solve(t.Context(), sandboxtest.New(t).Create(t), "Do")
	var x int
	if err == nil {
		err = result.Answer.Decode(&x)
	}
	if err != nil || x != 1 {
		t.Errorf("%d, %v", x, err)
	}
}

func TestSolveFails(t *testing.T) {
	t.Parallel()
	sb := sandboxtest.New(t).Create(t)
	closed := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(closed.Close)
	silent := modeltest.New(t, key, func([]loop.Message) string { return "I would rather not." })
	busy := modeltest.New(t, key, func([]loop.Message) string { return modeltest.Code("1") })
	deadly := modeltest.New(t, key, func([]loop.Message) string { return modeltest.Code("import os; os._exit(1)") })
	stranger := *silent
	stranger.Key = "sk-fedcba9876543210"
	for name, test := range map[string]struct {
		model *loop.Model
		want  string
		steps int
	}{
		"never any code":     {silent, "no steps left: no final answer in 3", 0},
		"never an answer":    {busy, "no steps left: no final answer in 3", 3},
		"the kernel dies":    {deadly, "kernel died", 1},
		"another key":        {&stranger, "401 Unauthorized: check the key", 0},
		"no such endpoint":   {&loop.Model{URL: closed.URL, Name: "m"}, "404", 0},
		"no endpoint at all": {&loop.Model{Name: "m"}, "no http or https URL", 0},
	} {
		t.Run(name, func(t *testing.T) {
			a := &loop.Agent{Model: test.model, Run: agent.Params{Limits: agent.Limits{MaxSteps: 3}}}
			result, err := a.Solve(t.Context(), sb, "Do")
			if err == nil || !strings.Contains(err.Error(), test.want) || result.Metrics.Steps != test.steps {
				t.Errorf("%+v, %v", result.Metrics, err)
			}
			if errors.Is(err, agent.ErrStepLimit) != (test.model == silent || test.model == busy) {
				t.Errorf("the kind of %v", err)
			}
		})
	}
	// The context is free again, and nothing of the run is left in it.
	ctx, cancel := context.WithCancel(t.Context())
	a := &loop.Agent{Model: modeltest.New(t, key, func([]loop.Message) string {
		cancel()
		return modeltest.Code("1")
	})}
	if _, err := a.Solve(ctx, sb, "Do"); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled run: %v", err)
	}
	if _, err := sb.RunCode(t.Context(), "final_answer", nil); err == nil || !strings.Contains(err.Error(), "NameError") {
		t.Errorf("afterwards: %v", err)
	}
}

// TestSolveSpendsItsBudget checks that the cost of the model is charged to the budget of the
// agent that asks it.
func TestSolveSpendsItsBudget(t *testing.T) {
	t.Parallel()
	sb := sandboxtest.New(t).Create(t)
	own, err := sb.Contexts.Create(t.Context(), nil)
	must.Do(t, err)
	asked := 0
	a := &loop.Agent{Run: agent.Params{Context: own.ID}, Model: modeltest.New(t, key, func([]loop.Message) string {
		asked++
		return modeltest.Code("1")
	})}
	helper := agent.MustManaged("helper", "", agent.Budget{MaxTokens: 2*modeltest.Tokens + 1}, func(ctx context.Context, task string) (state.Value, error) {
		result, err := a.Solve(ctx, sb, task)
		return result.Answer, err
	})
	run, err := agent.Begin(t.Context(), sb, &agent.Params{Tools: []agent.Tool{helper}})
	must.Do(t, err)
	defer run.Close()
	step, err := run.Exec(t.Context(), "helper('Do')")
	if err != nil || !strings.Contains(step.Observation(), "budget is spent: helper had a budget of 201 tokens") || asked != 3 {
		t.Errorf("asked %d times, %v\n%s", asked, err, step.Observation())
	}
}
