//go:build linux

package realservice_test

import (
	"context"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/realservice"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/state"
)

func begin(t *testing.T, sb *sandbox.Sandbox, p *agent.Params) *agent.Run {
	t.Helper()
	r, err := agent.Begin(t.Context(), sb, p)
	must.Do(t, err)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close the run: %v", err)
		}
	})
	return r
}

func step(t *testing.T, r *agent.Run, code string) *agent.Step {
	t.Helper()
	s, err := r.Exec(t.Context(), code)
	if err != nil {
		t.Fatalf("%q: %v", code, err)
	}
	return s
}

// fine runs a step that must have neither an exception nor a refusal of the
// guard.
func fine(t *testing.T, r *agent.Run, code string) *agent.Step {
	t.Helper()
	s := step(t, r, code)
	if s.Error != nil || len(s.Violations) != 0 || s.Stderr != "" {
		t.Errorf("%q: got %+v, %+v, %q, want none of them", code, s.Error, s.Violations, s.Stderr)
	}
	return s
}

// TestRun is a whole run of an agent, starting from the state that the
// template's startup script leaves: state, tools, guard, libraries, displayed
// values, an answer and pulled variables.
func TestRun(t *testing.T) {
	t.Parallel()
	sb := connect(t, realservice.Start(t))
	st := state.New()
	must.Do(t, st.Set("prices", []int{3, 4}))
	lookup := agent.MustTool("lookup", "returns the discount of a customer", func(_ context.Context, in struct {
		Customer string `json:"customer"`
	}) (float64, error) {
		return 0.5, nil
	})
	// The user may have loaded these before.
	_, err := sb.RunCode(t.Context(), "%load_ext autoreload\n%autoreload 2\n%matplotlib inline", nil)
	must.Do(t, err)
	r := begin(t, sb, &agent.Params{
		State: st, Tools: []agent.Tool{lookup},
		Guard: &agent.Guard{Allow: []string{"matplotlib.*"}, Presets: []agent.Preset{agent.DataAnalysis}},
	})
	if s := fine(t, r, "import pandas as pd\nframe = pd.DataFrame({'price': prices, 'day': pd.to_datetime(['2026-01-01', '2026-01-02'])})\nframe"); len(s.Results) != 1 ||
		string(s.Results[0].Data["e2b/data"]) != `{"price":[3,4],"day":["2026-01-01T00:00:00","2026-01-02T00:00:00"]}` {
		t.Errorf(`got %+v, want one result and s.Results[0].Data["e2b/data"] = %q`, s.Results, `{"price":[3,4],"day":["2026-01-01T00:00:00","2026-01-02T00:00:00"]}`)
	}
	if s := fine(t, r, "[1, {'a': (2, 3)}]"); len(s.Results) != 1 || string(s.Results[0].Data["application/json"]) != `[1,{"a":[2,3]}]` {
		t.Errorf(`got %+v, want one result and s.Results[0].Data["application/json"] = %q`, s.Results, `[1,{"a":[2,3]}]`)
	}
	if s := fine(t, r, "_[1]['a'], __ is frame"); s.Text() != "((2, 3), True)" {
		t.Errorf("got %+v, want text %q", s, "((2, 3), True)")
	}
	shown := fine(t, r, "import matplotlib.pyplot as plt\nplt.plot(frame.price)\nplt.title('prices')\nplt.show()")
	if len(shown.Results) != 1 || len(shown.Results[0].Data["image/png"]) == 0 || !strings.Contains(string(shown.Results[0].Data["e2b/chart"]), `"title":"prices"`) {
		t.Errorf("got %+v, want one result, a picture with a chart that has %s", shown.Results, `"title":"prices"`)
	}
	// The guard lets code use the names that the startup script left.
	if s := step(t, r, "sys.exit"); s.Error == nil || s.Refused == nil || s.Refused.Rule != "module" {
		t.Errorf("got %+v, want a Python error and s.Refused.Rule = %q", s, "module")
	}
	if s := step(t, r, "import sys"); s.Error == nil || s.Refused == nil || s.Refused.Rule != "import" {
		t.Errorf("got %+v, want a Python error and s.Refused.Rule = %q", s, "import")
	}
	fine(t, r, "class Priced:\n    def __init__(self, n): self.n = n\n    def _repr_e2b_data_(self): return {'n': [self.n]}\nPriced(2)")
	fine(t, r, "total = sum(prices) * lookup('c')\nprint(total)")
	s := fine(t, r, "del frame, Priced\nfinal_answer(total)")
	var answer float64
	if !s.Final || s.Value.Decode(&answer) != nil || answer != 3.5 {
		t.Errorf("got %+v, want the final answer 3.5", s)
	}
	must.Do(t, r.Pull(t.Context(), st))
	for _, name := range st.Names() {
		if name != "prices" && name != "total" {
			t.Errorf("the state has %s, which the run did not make", name)
		}
	}
}

// A run may import the modules that the service's formatters use, by the same
// names.
func TestRunImportsWhatFormattersUse(t *testing.T) {
	t.Parallel()
	sb := connect(t, realservice.Start(t))
	r := begin(t, sb, &agent.Params{Guard: &agent.Guard{Allow: []string{"sys"}, Presets: []agent.Preset{agent.DataAnalysis}}})
	s := fine(t, r, "import sys\nimport pandas\nassert sys.version_info > (3,)\npandas.DataFrame({'a': [1]})")
	if len(s.Results) != 1 || string(s.Results[0].Data["e2b/data"]) != `{"a":[1]}` {
		t.Errorf(`got %+v, want one result and s.Results[0].Data["e2b/data"] = %q`, s.Results, `{"a":[1]}`)
	}
	if s := step(t, r, "sys.modules['os']"); s.Error == nil || s.Refused == nil || s.Refused.Name != "os" {
		t.Errorf("got %+v, want a Python error and s.Refused.Name = %q", s, "os")
	}
}
