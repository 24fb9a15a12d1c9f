//go:build linux

package e2e

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/realservice"
	"github.com/e2bctl/e2bctl/sandbox"
)

// connectService returns the sandbox of a stand-in for the service, whose kernel is ipykernel.
func connectService(t *testing.T) *sandbox.Sandbox {
	t.Helper()
	s := realservice.Start(t)
	client, err := sandbox.NewClient(sandbox.WithAPIKey(realservice.APIKey), sandbox.WithAPIURL(s.URL), sandbox.WithSandboxURL(s.URL))
	must.Do(t, err)
	t.Cleanup(func() { client.Close() })
	sb, err := client.Connect(t.Context(), realservice.SandboxID)
	must.Do(t, err)
	t.Cleanup(func() { sb.Close() })
	return sb
}

// serviceCells are cells that show the properties of a kernel: they print, raise and show the
// same in each kernel. Improvements of this kernel are not among them: a command's lines do not
// end in "\r
// ", %less shows the file, and sys.exit does not advise to press Ctrl-D.
var serviceCells = []string{
	// The properties that libraries check.
	"shell = get_ipython()\ntype(shell).__name__, hasattr(shell, 'kernel'), 'IPKernelApp' in shell.config",
	"import sys; sys.stdout.encoding, sys.stdout.isatty(), sys.argv[0] != '-c', __name__",
	"import pandas as pd; pd.DataFrame([range(30)], columns=['a rather long name %d' % i for i in range(30)])",
	"import numpy as np; np.linspace(0, 1, 50), np.float64(1.5), [np.int64(3)]",
	"{1: 'a' * 100, 2: list(range(40))}",
	// Tracebacks.
	"def f(x):\n    # a comment\n\n    y = x + 1\n\n    return y / 0\n    # after\n\n    z = 1\n\n    # end\ndef g():\n    return f(1)\n\ng()",
	"import json\njson.loads('{')",
	"pd.DataFrame({'a': [1]})['b']",
	"x = (",
	"if True:\nx = 1",
	"for i in range(3):\n    assert i < 2, 'too many'",
	"raise SystemError",
	"class E(Exception):\n    def __str__(self): return 'several\\nlines'\nraise E",
	"exec(compile('1/0', 'elsewhere', 'exec'))",
	"%xmode Plain",
	"g()",
	"%xmode Minimal",
	"g()",
	"%xmode Context",
	"%tb",
	"%nothing",
	// Magics.
	"import os; first = os.getcwd()\n%cd -q /tmp\n%cd -q -\nos.getcwd() == first",
	"%history -l 2",
	"%history -n 1-2",
	"kept = {'a': 1}\n%store kept",
	"del kept\n%store -r kept\nkept",
	"%%writefile cell.txt\nwritten",
	"%autosave 5",
	"%%capture said\nprint('quiet')",
	"said.stdout",
	"%%bash\necho out; echo err >&2",
	// Tasks.
	"import asyncio\nasync def later(): return 42\ntask = asyncio.create_task(later())\nasyncio.get_running_loop().is_running()",
	"await task",
	"task.result()",
	// Values.
	"5;",
	"_, __",
	"print('a'); print('b', file=sys.stderr); 'c'",
	"from IPython.display import HTML, display; display(HTML('<b>1</b>')); display({'a': 1})",
}

// shownCell is the output of a cell.
type shownCell struct {
	Stdout, Stderr         string
	Results                []map[string]string
	Name, Value, Traceback string
}

// changing matches the parts that differ between two equal kernels: directories, the names of a
// cell's file, and addresses.
var changing = regexp.MustCompile(`[^\s'"(]*/(site-packages|python3\.\d+)\b|(/tmp/(jupyter\d+/)?ipykernel_\d+/)?\d+\.py\b| at 0x[0-9a-f]+`)

func showCell(t *testing.T, sb *sandbox.Sandbox, code string) (shown shownCell) {
	t.Helper()
	same := func(text string) string { return changing.ReplaceAllString(text, "CHANGING") }
	execution, err := sb.RunCode(t.Context(), code, nil)
	if raised, ok := errors.AsType[*sandbox.ExecutionError](err); ok {
		shown.Name, shown.Value, shown.Traceback = raised.Name, same(raised.Value), same(raised.Traceback)
	} else if err != nil {
		t.Fatalf("%q: %v", code, err)
	}
	shown.Stdout, shown.Stderr = same(execution.Stdout), same(execution.Stderr)
	for _, r := range execution.Results {
		data := map[string]string{}
		for kind, value := range r.Data {
			var text string
			if json.Unmarshal(value, &text) != nil {
				text = string(value)
			}
			data[kind] = same(text)
		}
		shown.Results = append(shown.Results, data)
	}
	return shown
}

// TestKernelIsTheServices compares forked and started kernels with ipykernel: the decisions of
// libraries, and the output of cells.
func TestKernelIsTheServices(t *testing.T) {
	t.Parallel()
	service := connectService(t)
	cloud := warmCloud(t)
	kernels := map[string]*sandbox.Sandbox{"started": cloud.Create(t, sandbox.WithEnvs(startsCold)), "forked": cloud.Create(t)}
	want := libraryOptions(t, service)
	for name, sb := range kernels {
		got := libraryOptions(t, sb)
		for _, module := range want["modules"].([]any) {
			if !slices.Contains(got["modules"].([]any), module) {
				t.Errorf("a %s kernel lacks the module %s", name, module)
			}
		}
		got["modules"] = want["modules"] // it may have more: the needs of its own formatters
		got["file"] = want["file"]       // the directory of temporary files is the test's own
		// The one warning that is useless here: no user can end the kernel by Ctrl-D.
		got["filters"] = slices.DeleteFunc(got["filters"].([]any), func(filter any) bool {
			return strings.Contains(filter.(string), "To exit: use")
		})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("libraries of a %s kernel differ (-ipykernel +%s):\n%s", name, name, diff)
		}
	}
	for _, code := range serviceCells {
		want := showCell(t, service, code)
		for name, sb := range kernels {
			if diff := cmp.Diff(want, showCell(t, sb, code)); diff != "" {
				t.Errorf("%q in a %s kernel (-ipykernel +%s):\n%s", code, name, name, diff)
			}
		}
	}
}

// libraryOptions returns the output of libraries.
func libraryOptions(t *testing.T, sb *sandbox.Sandbox) (found map[string]any) {
	t.Helper()
	execution, err := sb.RunCode(t.Context(), libraries, nil)
	if err == nil {
		err = json.Unmarshal([]byte(execution.Stdout), &found)
	}
	must.Do(t, err)
	return found
}
