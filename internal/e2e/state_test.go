//go:build linux

package e2e

import (
	"bytes"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/state"
)

type sale struct {
	City   string  `py:"city"`
	Amount float64 `py:"amount"`
}

// Another sandbox continues with the values that one sandbox computed, through
// a file.
func TestStateContinuesInAnotherSandbox(t *testing.T) {
	t.Parallel()
	c := client(t, shared(t))
	st := state.New()
	table, err := state.TableOf([]sale{{"Bern", 1.5}, {"Köln", 2}})
	must.Do(t, err)
	array, err := state.ArrayOf(make([]float64, 1<<20))
	must.Do(t, err)
	for name, v := range map[string]any{"sales": table, "zeros": array} {
		must.Do(t, st.Set(name, v))
	}
	step := func(code string, pull bool) {
		t.Helper()
		sb, err := c.Create(t.Context())
		must.Do(t, err)
		defer sb.Close()
		run, err := agent.Begin(t.Context(), sb, &agent.Params{State: st})
		must.Do(t, err)
		defer run.Close()
		step, err := run.Exec(t.Context(), code)
		if err != nil || step.Error != nil {
			t.Fatalf("got %v, %v, want no error", err, step.Error)
		}
		if pull {
			must.Do(t, run.Pull(t.Context(), st))
		}
	}
	step("zeros[7] = 1\nsales['amount'] *= 2\nbest = sales.loc[sales['amount'].idxmax()]\nlabel = best['city']", true)
	var file bytes.Buffer
	if _, err := st.WriteTo(&file); err != nil {
		t.Fatal(err)
	}
	st, err = state.Load(&file, state.Bounds{})
	must.Do(t, err)
	step("assert zeros.sum() == 1 and len(zeros) == 1 << 20\nassert list(sales['amount']) == [3.0, 4.0] and label == 'Köln' and best['amount'] == 4", false)
}
