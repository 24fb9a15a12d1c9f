//go:build linux

package local_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/state"
)

// TestWasmAgent makes an agent's run: state both ways, tools in both kinds of code, a guard
// that refuses, and a final answer that only final_answer gives.
func TestWasmAgent(t *testing.T) {
	t.Parallel()
	sb := wasm(t)
	add := agent.MustTool("add", "Adds.", func(_ context.Context, in struct {
		A int `py:"a"`
		B int `py:"b"`
	}) (int, error) {
		return in.A + in.B, nil
	})
	broken := agent.MustTool("broken", "Fails.", func(context.Context, struct{}) (string, error) { return "", errors.New("no such thing") })
	values := state.New()
	must.Do(t, values.Set("rows", []map[string]any{{"name": "ä", "n": 1}, {"name": "b", "n": 2.5}}))
	must.Do(t, values.Set("blob", make([]byte, 2<<20)))
	if _, err := agent.Begin(t.Context(), sb, &agent.Params{Limits: agent.Limits{MaxMemoryBytes: 300 << 20}}); err == nil || !strings.Contains(err.Error(), "Limits.MaxMemoryBytes is not supported") {
		t.Errorf("a bound for memory: got %v, want that it is refused by name", err)
	}
	run, err := agent.Begin(t.Context(), sb, &agent.Params{State: values, Tools: []agent.Tool{add, broken}, Guard: &agent.Guard{Allow: []string{"asyncio"}}})
	must.Do(t, err)
	defer run.Close()
	exec := func(code string) *agent.Step {
		t.Helper()
		step, err := run.Exec(t.Context(), code)
		if err != nil {
			t.Fatalf("%s: %v", code, err)
		}
		return step
	}
	var n int
	if step := exec("total = add(2, b=3)\ntotal + len(rows) + (len(blob) == 2 << 20)"); step.Error != nil || step.Decode(&n) != nil || n != 8 {
		t.Errorf("got %+v, %d, want 8", step, n)
	}
	if step := exec("import asyncio\nasync def f(i): return add(i, 1)\nsum(await asyncio.gather(*(f(i) for i in range(10))))"); step.Error != nil || step.Decode(&n) != nil || n != 55 {
		t.Errorf("got %+v, %d, want 55", step.Error, n)
	}
	if step := exec("broken()"); step.Error == nil || !strings.Contains(step.Error.Value, "no such thing") {
		t.Errorf("got %+v, want the tool's error", step.Error)
	}
	if step := exec("import js"); step.Refused == nil {
		t.Errorf("got %+v, want that the guard refuses the import", step)
	}
	if step := exec("open('/home/user/x', 'w')"); step.Refused == nil {
		t.Errorf("got %+v, want that the guard refuses a file", step)
	}
	exec("rows.append({'name': 'c', 'n': total})")
	must.Do(t, run.Pull(t.Context(), values))
	var rows []struct {
		Name string  `py:"name"`
		N    float64 `py:"n"`
	}
	if err := values.Get("rows", &rows); err != nil || len(rows) != 3 || rows[0].Name != "ä" || rows[2].N != 5 {
		t.Errorf("got %+v, %v, want what the code appended", rows, err)
	}
	if step := exec("print('final_answer(1)')\nraise SystemExit"); step.Final {
		t.Errorf("got a final answer of %+v, want none", step)
	}
	var fibonacci string
	step := exec("a, b = 0, 1\nfor _ in range(100): a, b = b, a + b\nfinal_answer(str(a))")
	if !step.Final || step.Decode(&fibonacci) != nil || fibonacci != "354224848179261915075" {
		t.Errorf("got %+v, %q, want the 100th Fibonacci number", step, fibonacci)
	}
}
