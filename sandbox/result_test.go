package sandbox

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/pyshim"
)

func TestResultChartAndDataFrame(t *testing.T) {
	t.Parallel()
	if c := (Result{}).Chart(); c != nil {
		t.Error("a result of nothing has a chart")
	}
	if frame := (Result{}).DataFrame(); frame != nil {
		t.Error("a result of nothing has a data frame")
	}
	r := Result{Data: map[string]json.RawMessage{
		"e2b/chart": json.RawMessage(`{"type":"pie","elements":[]}`),
		"e2b/data":  json.RawMessage(`{"a":[1]}`),
	}}
	if c := r.Chart(); c == nil {
		t.Error("the chart is not found")
	}
	if frame := r.DataFrame(); frame == nil || len(frame.Columns) != 1 {
		t.Errorf("the data frame is %+v", frame)
	}
	r.Data["text/plain"] = json.RawMessage(`"   a\n0  1"`)
	var rows []int
	if err := r.Decode(&rows); !errors.Is(err, api.ErrInvalidArgument) || !strings.Contains(err.Error(), "Result.DataFrame returns it") {
		t.Errorf("decoding a data frame: %v, want where to find it", err)
	}
	r.Data["e2b/data"] = json.RawMessage(`{"a":1}`)
	if frame := r.DataFrame(); frame != nil {
		t.Error("a column that is no list is taken for one")
	}
}

// TestTracebackWithoutTheModulesOfARun checks that the modules that a run has in a kernel have no
// frames in tracebacks of code, whichever Python wrote the traceback.
func TestTracebackWithoutTheModulesOfARun(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ traceback, want string }{
		"IPython": {
			"Cell In[1], line 2, in f(x)\n----> 2     return weather(x)\n\nFile <_e2bctl_tools>:188, in _function.<locals>.function(*args, **kwargs)\n\nToolError: no",
			"Cell In[1], line 2, in f(x)\n----> 2     return weather(x)\n\nToolError: no",
		},
		"IPython, which looks for the source": {
			"Cell In[2], line 1\n----> 1 weather(1)\n\nFile <_e2bctl_tools>:184, in f(*args)\n    180 'Could not get source, probably due dynamically evaluated source code.'\nTypeError: no",
			"Cell In[2], line 1\n----> 1 weather(1)\n\nTypeError: no",
		},
		"and marks the line": {
			"Cell In[2], line 1\n\nFile <_e2bctl_guard>:174, in <lambda>(prompt)\n--> 174 'Could not get source, probably due dynamically evaluated source code.'\nFile x.py:3, in y",
			"Cell In[2], line 1\n\nFile x.py:3, in y",
		},
		"Python": {
			"  File \"<cell 1>\", line 3, in <module>\n  File \"<_e2bctl_tools>\", line 188, in function\nToolError: no\n",
			"  File \"<cell 1>\", line 3, in <module>\nToolError: no\n",
		},
		"a group": {
			"  |   File \"<cell 1>\", line 3, in <module>\n  |   File \"<_e2bctl_guard>\", line 1, in import_\n  | ImportError: no\n",
			"  |   File \"<cell 1>\", line 3, in <module>\n  | ImportError: no\n",
		},
		"what only looks similar": {"File <_e2bctl_tools> is missing\nFile \"<string>\", line 1\n", "File <_e2bctl_tools> is missing\nFile \"<string>\", line 1\n"},
	} {
		if got := newExecutionError("E", "v", test.traceback).Traceback; got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

// TestValueOfAMalformedResult checks that no form of a result that cannot be read is taken for a value.
func TestValueOfAMalformedResult(t *testing.T) {
	t.Parallel()
	for mime, content := range map[string]string{
		pyshim.MIME: `"{"`, "application/json": `{"a":`, "text/plain": `"<object>"`, "image/png": `"x"`,
	} {
		r := Result{Data: map[string]json.RawMessage{mime: json.RawMessage(content)}}
		if value, err := r.Value(); err == nil {
			t.Errorf("%s %s: got the value %v, want an error", mime, content, value)
		}
		var to []int
		if err := r.Decode(&to); err == nil {
			t.Errorf("%s %s: decoded as %v, want an error", mime, content, to)
		}
	}
}
