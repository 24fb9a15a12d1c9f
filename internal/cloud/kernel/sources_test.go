//go:build linux

package kernel

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// keepThree makes a kernel keep three cells.
const keepThree = `import sys; sys.modules["_e2bctl_kernel.sources"].KEPT = 3`

// TestSourcesOfCells checks that a kernel drops the source lines of early cells, except for those that define
// something: later cells may call it, and a traceback shows its lines.
func TestSourcesOfCells(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, python string) {
		s := attach(t, newKernel(t, python))
		for _, code := range []string{keepThree, "def fails():\n    raise ValueError('here')", "class C: a = 'of C'", "g = lambda: 'of g'", "first = 1", "second = 2"} {
			s.run(code)
		}
		for i := range 8 {
			s.run(fmt.Sprintf("a%d = %d", i, i))
		}
		// Which of the lines are there is asked in a cell, whose own lines are kept, too.
		const ask = `import linecache; print(sorted(line.strip() for f, (n, t, lines, name) in linecache.cache.items() ` +
			`if 'ipykernel' in f or f.startswith('<cell') for line in lines if 'linecache' not in line))`
		got := s.run(ask)
		if want := `['a6 = 6', 'a7 = 7', "class C: a = 'of C'", 'def fails():', "g = lambda: 'of g'", "raise ValueError('here')"]` + "\n"; got.stdout != want {
			t.Errorf("lines are kept of %s, %+v, want %s", got.stdout, got.errors, want)
		}
		failed := s.run("fails()")
		if len(failed.errors) != 1 || !strings.Contains(strings.Join(failed.errors[0].Traceback, "\n"), "here") || !strings.Contains(plainText(failed.errors[0].Traceback), "raise ValueError") {
			t.Errorf("got %+v, want the line of the function", failed.errors)
		}
	})
}

// plainText is a traceback without colours.
func plainText(lines []string) string {
	var plain strings.Builder
	for i, part := range strings.Split(strings.Join(lines, "\n"), "\x1b[") {
		if i > 0 {
			_, part, _ = strings.Cut(part, "m")
		}
		plain.WriteString(part)
	}
	return plain.String()
}

// TestHistoryIsBounded checks that a kernel keeps only its latest cells, and no other record of earlier ones.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	s := attach(t, newKernel(t, richPython(t)))
	s.run(keepThree)
	for _, code := range []string{"b = 2", "!true", "d = 4", "d = 4", "f = 6"} {
		s.run(code)
	}
	for _, tt := range []struct{ code, want string }{
		{"In[:4], In[5], In[-2]", "(['', '', '', ''], 'd = 4', 'f = 6')"},
		{"_i7, sorted(n for n in get_ipython().user_ns if n[:2] == '_i' and n[2:].isdigit())", "('In[:4], In[5], In[-2]', ['_i6', '_i7', '_i8'])"},
		{"sorted(n for n in get_ipython().user_ns_hidden if n[:2] == '_i' and n[2:].isdigit())", "['_i7', '_i8', '_i9']"},
		{"m = get_ipython().history_manager; m.input_hist_raw[:8], len(m.db_input_cache)", "(['', '', '', '', '', '', '', ''], 0)"},
		{"import inspect; c = get_ipython().compile; len(c._filename_map), sum('ipykernel' in n for n in inspect.modulesbyfile)", "(3, 3)"},
		{"_i[:14]", "'import inspect'"},
	} {
		if o := s.run(tt.code); o.text() != tt.want {
			t.Errorf("%s: got %s, %+v, want %s", tt.code, o.text(), o.errors, tt.want)
		}
	}
	for _, tt := range []struct{ content, want string }{
		{`{"hist_access_type":"range","start":1,"stop":12}`, `{"history":[[0,10,"m = get_ipython().history_manager; m.input_hist_raw[:8], len(m.db_input_cache)"]` +
			`,[0,11,"import inspect; c = get_ipython().compile; len(c._filename_map), sum('ipykernel' in n for n in inspect.modulesbyfile)"]],"status":"ok"}`},
		{`{"hist_access_type":"search","pattern":"*"}`, `{"history":[[0,10,"m = get_ipython().history_manager; m.input_hist_raw[:8], len(m.db_input_cache)"]` +
			`,[0,11,"import inspect; c = get_ipython().compile; len(c._filename_map), sum('ipykernel' in n for n in inspect.modulesbyfile)"],[0,12,"_i[:14]"]],"status":"ok"}`},
	} {
		if diff := cmp.Diff(tt.want, s.answer("history_request", tt.content)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.content, diff)
		}
	}
}

// TestOutputIsBounded checks that a kernel keeps nothing of a value that Out no longer has.
func TestOutputIsBounded(t *testing.T) {
	t.Parallel()
	s := attach(t, newKernel(t, richPython(t)))
	s.run(`import gc; hook = get_ipython().displayhook; hook.cache_size = 4; hook.cull_fraction = 0.5
class Held:
    def __repr__(self): return "held"`)
	for range 6 {
		s.run("Held()")
	}
	for _, tt := range []struct{ code, want string }{
		{"print(sorted(Out), sorted(get_ipython().history_manager.output_hist_reprs))", "[4, 5, 6, 7] [4, 5, 6, 7]\n"},
		{"print(sum(isinstance(o, Held) for o in gc.get_objects()), [n for n in ('_2', '_3', '_4') if n in get_ipython().user_ns_hidden])", "4 ['_4']\n"},
	} {
		if o := s.run(tt.code); o.stdout != tt.want {
			t.Errorf("%s: got %s, %+v, want %s", tt.code, o.stdout, o.errors, tt.want)
		}
	}
}
