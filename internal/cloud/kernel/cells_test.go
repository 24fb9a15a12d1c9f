//go:build linux

package kernel

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/must"
)

// since311 matches names that only Python 3.11 and newer have.
var since311 = regexp.MustCompile(`ExceptionGroup|add_note`)

// TestCellsThatBreakThings checks that cells that break their own interpreter get an error, and
// that the kernel continues.
func TestCellsThatBreakThings(t *testing.T) {
	t.Parallel()
	s := attach(t, newKernel(t, richPython(t)))
	modern := s.run("ExceptionGroup").reply.Status == "ok"
	for _, test := range []struct{ code, stdout, text, failure, trace string }{
		{code: "import sys; sys.stdout.close(); print('on')", stdout: "on\n"},
		{code: "import os; os.close(1); print('on')", stdout: "on\n"},
		{code: "sys.stdout = None"},
		{code: "5", text: "5"},
		{code: "sys.stdout = sys.__stdout__; print('on')", stdout: "on\n"},
		{code: "sys.displayhook = None"},
		{code: "6", text: "6"},
		{code: "import gc; gc.disable()\nimport tempfile; d = tempfile.mkdtemp(); os.chdir(d); os.rmdir(d)"},
		{code: "7", text: "7"},
		{code: "os.chdir('/')"},
		{code: "exit()", failure: "SystemExit"},
		{code: "quit()", failure: "SystemExit"},
		{code: "def f(): f()\nf()", failure: "RecursionError", trace: "maximum recursion depth exceeded"},
		{code: "  x = 1\n y = 2", failure: "IndentationError"},
		{code: "e = ValueError('a'); e.add_note('NOTE'); raise e", failure: "ValueError", trace: "NOTE"},
		{code: "raise ExceptionGroup('g', [ValueError(1), TypeError(2)])", failure: "ExceptionGroup", trace: "| TypeError: 2"},
		{code: "class E(Exception):\n    def __str__(self): raise ValueError\nraise E", failure: "E"},
		{code: "sys.setrecursionlimit(5_000)\ndef f(): f()\nf()", failure: "RecursionError", trace: "frames are left out"},
		{code: "try: raise ExceptionGroup('g', [ValueError(1)])\nfinally: raise KeyError(2)", failure: "KeyError", trace: "| ValueError: 1"},
		{code: "class R:\n    def __repr__(self): raise KeyError('no repr')\nR()", failure: "KeyError"},
		{code: "raise Exception('x' * (50 << 20))", failure: "Exception", trace: "characters left out"},
		{code: "del __builtins__.print\nprint", failure: "NameError"},
		{code: "8", text: "8"},
	} {
		if since311.MatchString(test.code) && !modern {
			continue
		}
		o := s.run(test.code)
		failure, trace := "", ""
		if len(o.errors) > 0 {
			failure, trace = o.errors[0].Name, strings.Join(o.errors[0].Traceback, "")
		}
		if len(o.errors) > 1 {
			t.Errorf("%q: %d errors, want at most 1", test.code, len(o.errors))
		}
		if o.stdout != test.stdout || o.text() != test.text {
			t.Errorf("%q: stdout %q, text %q, stderr %.300q, want %q, %q", test.code, o.stdout, o.text(), o.stderr, test.stdout, test.text)
		}
		if failure != test.failure || !strings.Contains(trace, test.trace) {
			t.Errorf("%q: error %q %.300q, want %q and %q in its traceback", test.code, failure, trace, test.failure, test.trace)
		}
	}
}

func TestTableOfOddValues(t *testing.T) {
	t.Parallel()
	s := attach(t, newKernel(t, richPython(t)))
	if o := s.run("import decimal, pandas as pd"); len(o.errors) > 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("no pandas in this Python, which CI needs")
		}
		t.Skip("no pandas in this Python")
	}
	o := s.run("pd.DataFrame({'td': [pd.Timedelta('1s')], 'd': [decimal.Decimal('1.5')], 'na': [pd.NA], 'nat': [pd.NaT], 1: [{2}]})")
	// pandas may represent a missing value as its own NA or as nothing.
	got := ""
	if len(o.results) == 1 {
		got = strings.Replace(string(o.results[0].Data["e2b/data"]), `"<NA>"`, "null", 1)
	}
	if want := `{"td":["0 days 00:00:01"],"d":["1.5"],"na":[null],"nat":["NaT"],"1":[[2]]}`; got != want || o.stderr != "" {
		t.Errorf("%s, want %s; stderr %q", got, want, o.stderr)
	}
	if o := s.run("pd.DataFrame([[1, 2]], columns=['a', 'a'])"); o.stderr != "" || len(o.results) != 1 {
		t.Errorf("two columns of one name: %q %v, want no stderr and one result", o.stderr, o.results)
	}
}

// Callbacks of the shell, which run before the cell's own code, swallow
// exceptions that are raised in them. If the code does not compile, the interrupt
// comes too late: it does not hit the next cell.
func TestInterruptBeforeTheCellsCode(t *testing.T) {
	t.Parallel()
	s := attach(t, newKernel(t, richPython(t)))
	s.run("import os, signal, time\ndef strike(*_):\n    events.unregister('pre_run_cell', strike)\n    os.kill(os.getpid(), signal.SIGINT)\nevents = get_ipython().events")
	for code, want := range map[string]string{"time.sleep(60)": "KeyboardInterrupt", ")": "SyntaxError"} {
		s.run("events.register('pre_run_cell', strike)")
		if o := s.run(code); o.reply.Name != want || len(o.errors) != 1 {
			t.Errorf("%s: got %+v, want the reply %q and one error", code, o, want)
		}
		if o := s.run("'next'"); o.text() != "'next'" {
			t.Errorf("after %s: got %+v, want the next cell to run", code, o)
		}
	}
}

func TestUnknownCommIsClosed(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, python string) {
		s := attach(t, newKernel(t, python))
		r := &Request{Header: jupyter.NewHeader("comm_open", "", ""), Content: json.RawMessage(`{"comm_id":"c1","target_name":"widget","data":{}}`)}
		must.Do(t, s.client.Submit(r))
		for e := s.next(); e.Type != "comm_close"; e = s.next() {
			if strings.Contains(string(e.Content), `"idle"`) {
				t.Fatal("no comm_close came")
			}
		}
	})
}
