//go:build linux

package kernel

import (
	"strings"
	"testing"
)

// The features that a Python without IPython lacks, as the package's
// documentation lists them, and those that it still has, after any cells.
func TestPlain(t *testing.T) {
	t.Parallel()
	_, plain := pythons()
	if plain == "" {
		t.Skip("no Python without IPython here")
	}
	k := newKernel(t, plain)
	s := attach(t, k)
	info, err := k.Start(t.Context())
	if err != nil || info.Engine != "python" || !strings.Contains(info.Note, "install ipython") {
		t.Errorf("got %+v, %v, want the engine %q, %q in its note and no error", info, err, "python", "install ipython")
	}
	modern := s.run("ExceptionGroup").reply.Status == "ok"
	for _, test := range []struct{ code, stdout, text, failure, trace string }{
		{code: "%time 1", failure: "SyntaxError"},
		{code: "!ls", failure: "SyntaxError"},
		{code: "display(1)", failure: "NameError"},
		{code: "get_ipython()", failure: "NameError"},
		{code: "class H:\n    def _repr_html_(self): return '<b>'\n    def __repr__(self): return 'plain'\nH()", text: "plain"},
		{code: "_", text: "plain"},
		{code: "5;"},
		{code: "import asyncio\nleft = asyncio.ensure_future(asyncio.sleep(3600))\nawait asyncio.sleep(0, 6)", text: "6"},
		{code: "def f(): f()\nf()", failure: "RecursionError", trace: "more times]"},
		{code: "import sys; sys.setrecursionlimit(3000); sys.modules.clear()"},
		{code: "import json; json.dumps(7)", text: "'7'"},
		{code: "exit()", failure: "SystemExit"},
		{code: "import sys; sys.stdout.close(); sys.stdout = None"},
		{code: "sys.stdout = sys.__stdout__; print('on')", stdout: "on\n"},
		{code: "sys.displayhook = None; 8", text: "8"},
		{code: "class E(Exception):\n    def __str__(self): raise ValueError\nraise E", failure: "E"},
		{code: "class R:\n    def __repr__(self): raise KeyError('no repr')\nR()", failure: "KeyError"},
		{code: "raise Exception('x' * (50 << 20))", failure: "Exception", trace: "characters left out"},
		{code: "import os, tempfile; d = tempfile.mkdtemp(); os.chdir(d); os.rmdir(d); 9", text: "9"},
		{code: "os.chdir('/'); os.close(1); print('on')", stdout: "on\n"},
		{code: "del __builtins__"},
		{code: "raise ExceptionGroup('g', [ValueError(1), TypeError(2)])", failure: "ExceptionGroup", trace: "| TypeError: 2"},
		{code: "10", text: "10"},
	} {
		if since311.MatchString(test.code) && !modern {
			continue
		}
		o := s.run(test.code)
		failure, trace := "", ""
		if len(o.errors) > 0 {
			failure, trace = o.errors[0].Name, strings.Join(o.errors[0].Traceback, "")
		}
		if o.stdout != test.stdout || o.text() != test.text {
			t.Errorf("%q: stdout %q, text %q, stderr %.300q, want %q, %q", test.code, o.stdout, o.text(), o.stderr, test.stdout, test.text)
		}
		if failure != test.failure || !strings.Contains(trace, test.trace) {
			t.Errorf("%q: error %q %.300q, want %q and %q in its traceback", test.code, failure, trace, test.failure, test.trace)
		}
		if o.reply.Name != failure || len(o.errors) > 1 {
			t.Errorf("%q: reply %+v, errors %v, want one error in both", test.code, o.reply, o.errors)
		}
	}
}

// A child that a cell forked ends with the cell, and reports whether it failed.
func TestForkedChildEnds(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, python string) {
		s := attach(t, newKernel(t, python))
		for code, want := range map[string]string{"pass": "0", "1/0": "1"} {
			o := s.run("import os\npid = os.fork()\nif pid == 0:\n    " + code + "\nelse:\n    status = os.waitpid(pid, 0)[1] >> 8")
			if len(o.errors) > 0 || o.stdout != "" {
				t.Errorf("%s: got %+v, want no Python error and no stdout", code, o)
			}
			if o := s.run("status"); o.text() != want {
				t.Errorf("%s: status %s, want %s", code, o.text(), want)
			}
		}
	})
}
