//go:build linux

package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// libraries collects the decisions that libraries made when they were imported, and their
// effects on cells.
const libraries = `
import json, locale, sys, warnings
import matplotlib, matplotlib.pyplot, numpy, pandas
from pandas._config import config
def flat(options, prefix=""):
    for name, value in options.items():
        if isinstance(value, dict): yield from flat(value, prefix + name + ".")
        else: yield prefix + name, repr(value)
shell = get_ipython()
wide = pandas.DataFrame([range(30)], columns=["a rather long name %d" % i for i in range(30)])
def failing():
    raise ExceptionGroup("several", [ValueError("one"), KeyError("two")])
try:
    failing()
except Exception as error:
    file = error.__traceback__.tb_next.tb_frame.f_code.co_filename
print(json.dumps({
    "pandas": dict(flat(config._global_config)), "matplotlib": {k: repr(v) for k, v in matplotlib.rcParams.items()},
    "backend": matplotlib.get_backend(), "numpy": repr(numpy.get_printoptions()), "errors": repr(numpy.geterr()),
    "filters": [repr(f) for f in warnings.filters], "locale": locale.setlocale(locale.LC_ALL),
    "modules": sorted(name for name in sys.modules if name.partition(".")[0] in ("matplotlib", "numpy", "pandas", "PIL")),
    "last": [name for name in dir(sys) if name.startswith("last_")],
    "wide": repr(wide), "columns": pandas.get_option("display.max_columns"), "html": wide._repr_html_(),
    "shell": type(shell).__name__, "kernel": hasattr(shell, "kernel"),
    "file": file.replace(str(__import__("os").getpid()), "PID").rpartition("/")[0],
}))
`

// TestForkedLibraries compares libraries in a forked kernel with those in a started one and in
// ipykernel.
func TestForkedLibraries(t *testing.T) {
	t.Parallel()
	cloud := warmCloud(t)
	var found [2]map[string]any
	for i, sb := range []*sandbox.Sandbox{cloud.Create(t, sandbox.WithEnvs(startsCold)), cloud.Create(t)} {
		execution, err := sb.RunCode(t.Context(), libraries, nil)
		if err == nil {
			err = json.Unmarshal([]byte(execution.Stdout), &found[i])
		}
		must.Do(t, err)
	}
	// A forked kernel has shown a table and a figure before, and has the modules that this
	// imports.
	started, ahead := found[0]["modules"].([]any), found[1]["modules"].([]any)
	for _, name := range started {
		if !slices.Contains(ahead, name) {
			t.Errorf("a forked kernel lacks the module %s", name)
		}
	}
	delete(found[0], "modules")
	delete(found[1], "modules")
	if diff := cmp.Diff(found[0], found[1]); diff != "" {
		t.Errorf("libraries of a forked kernel differ (-started +forked):\n%s", diff)
	}
	for name, want := range map[string]any{
		"columns": 20.0, "shell": "ZMQInteractiveShell", "kernel": true, "file": "/tmp/ipykernel_PID", "last": []any{},
	} {
		if diff := cmp.Diff(want, found[1][name]); diff != "" {
			t.Errorf("%s (-ipykernel +forked):\n%s", name, diff)
		}
	}
}

// The first exception of a forked kernel imports nothing and does not go through all modules:
// code that is interrupted must report its position at once.
func TestForkedKernelsFirstException(t *testing.T) {
	t.Parallel()
	sb := warmCloud(t).Create(t)
	sandboxtest.Eval(t, sb, `
import inspect, sys
asked, is_module, before = 0, inspect.ismodule, set(sys.modules)
def count(value):
    global asked
    asked += 1
    return is_module(value)
inspect.ismodule = count`)
	_, err := sb.RunCode(t.Context(), "import json\ndef fails():\n    json.loads('')\nfails()", nil)
	if !isException(err, "JSONDecodeError") {
		t.Fatalf("got %v, want the Python exception JSONDecodeError", err)
	}
	if got := sandboxtest.Eval(t, sb, "sorted(set(sys.modules) - before)"); got != "[]" {
		t.Errorf("the first exception imports %s, want nothing", got)
	}
	if got := sandboxtest.Eval(t, sb, "asked < len(sys.modules) / 2, asked"); !strings.HasPrefix(got, "(True") {
		t.Errorf("the first exception looks at %s modules, want less than half of all", got)
	}
}
