//go:build linux

package e2e

import (
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// A guard works in the kernel of a real sandbox, where IPython keeps more names
// of its own among the user's than in a bare shell.
func TestGuardInASandbox(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	sandboxtest.Eval(t, sb, "import os")
	r, err := agent.Begin(t.Context(), sb, &agent.Params{Guard: &agent.Guard{Presets: []agent.Preset{agent.DataAnalysis}}})
	must.Do(t, err)
	defer r.Close()
	for _, tt := range []struct{ code, rule, value string }{
		{"!echo Bad command", "shell", "invalid syntax"},
		{"%pip list", "shell", "invalid syntax"},
		{"import subprocess", "import", "Import of subprocess is not allowed (line 1)"},
		{"import random\nrandom._os.system('echo')", "module", "Forbidden access to module: os (line 2)"},
		{"while True:\n    pass", "loop", "Maximum number of 1000000 iterations in While loop exceeded (line 1)"},
		{"os.getcwd()", "module", "Forbidden access to module: os"},
		{"open('/etc/passwd')", "function", "Forbidden function evaluation: open"},
		{"exit._ip.system('true')", "frame", "Forbidden access to attribute: _ip"},
		{"await __import__('asyncio').sleep(0)", "function", "Forbidden function evaluation: __import__"},
	} {
		step, err := r.Exec(t.Context(), tt.code)
		if err != nil {
			t.Fatalf("%q: %v", tt.code, err)
		}
		if e := step.Error; e == nil || e.Name != "GuardViolation" || !strings.Contains(e.Value, tt.value) {
			t.Errorf("%q: got %+v, want a GuardViolation with %q", tt.code, e, tt.value)
		}
		if step.Refused == nil || string(step.Refused.Rule) != tt.rule {
			t.Errorf("%q: refused %+v, want the rule %q", tt.code, step.Refused, tt.rule)
		}
	}
	for _, name := range []string{"SystemExit", "KeyboardInterrupt"} { // they end the step, not the kernel
		step, err := r.Exec(t.Context(), "raise "+name+"(1)")
		if err != nil || step.Error == nil || step.Error.Name != name {
			t.Errorf("got %+v, %v, want %s and no error", step, err, name)
		}
	}
	step, err := r.Exec(t.Context(), "import math\nx = 4\nmath.sqrt(x)")
	if err != nil || step.Error != nil || len(step.Violations) != 0 {
		t.Errorf("got %+v, %v, want no error, Python error or violation", step, err)
	}
	if len(step.Results) != 1 || step.Results[0].Text() != "2.0" {
		t.Errorf("got the results %+v, want %q", step.Results, "2.0")
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if got, want := sandboxtest.Eval(t, sb, "open('/dev/null').close()\nimport subprocess\nsubprocess.run(['echo', str(x)], stdout=-1).stdout, os.path.sep, get_ipython() is not None"), `(b'4\n', '/', True)`; got != want {
		t.Errorf("after Close: %s, want %s", got, want)
	}
}

// pandas draws, groups and prints the same under a guard as without one.
func TestGuardLetsLibrariesWork(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	r, err := agent.Begin(t.Context(), sb, &agent.Params{Guard: &agent.Guard{Allow: []string{"matplotlib.*"}, Presets: []agent.Preset{agent.DataAnalysis}}})
	must.Do(t, err)
	defer r.Close()
	step, err := r.Exec(t.Context(), `import numpy as np
import pandas as pd
import matplotlib.pyplot as plt
df = pd.DataFrame({"k": list("aab"), "v": np.arange(3.0)})
assert df.groupby("k").v.mean().to_dict() == {"a": 0.5, "b": 2.0}
assert isinstance(np.random.default_rng(1).normal(), float) and np.linalg.norm(np.ones(4)) == 2
df.to_csv("/tmp/t.csv"); pd.read_csv("/tmp/t.csv")
plt.plot(df.v)
plt.show()
df.describe()`)
	if err != nil || step.Error != nil || len(step.Violations) != 0 {
		t.Fatalf("%v: got %+v, %+v, want no Python error, no violations and no error", err, step.Error, step.Violations)
	}
	if len(step.Results) != 2 || step.Results[1].HTML() == "" {
		t.Errorf("%d results", len(step.Results))
	}
	if step.Results[0].PNG() == nil {
		t.Error("no figure")
	}
}
