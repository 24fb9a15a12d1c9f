//go:build linux

package kernel

import (
	"strings"
	"testing"
)

// Magics that need a feature that a kernel lacks, or that ipykernel adds to IPython,
// behave as they do there.
func TestMagics(t *testing.T) {
	t.Parallel()
	s := attach(t, newKernel(t, richPython(t)))
	home := strings.TrimSpace(s.run("import os; print(os.getcwd())").stdout)
	for _, test := range []struct{ code, stdout, stderr, text, shown string }{
		{code: "%tb", stderr: "No traceback available to show.\n"},
		{code: "%cd -q /tmp"},
		{code: "%cd -", stdout: home + "\n"},
		{code: "%dhist", stdout: "Directory history (kept in _dh)\n0: " + home + "\n1: /tmp\n2: " + home + "\n"},
		{code: "odd = 5"},
		{code: "%history -l 2", stdout: "%dhist\nodd = 5\n"},
		{code: "%history -l 1", stdout: "%history -l 2\n"},
		{code: "odd = 5"},
		{code: "%history -u -g odd =", stdout: "   9: odd = 5\n  10: %history -u -g odd =\n"},
		{code: "%store odd", stdout: "Stored 'odd' (int)\n"},
		{code: "del odd\n%store -r odd\nodd", text: "5"},
		{code: "open('page.txt', 'w').write('a page');\n%less page.txt", shown: "a page"},
		{code: "%more page.txt", shown: "a page"},
		{code: "%clear", stdout: "\x1b[H\x1b[2J"},
		{code: "%autosave 10", stdout: "Autosaving every 10 seconds\n"},
	} {
		o := s.run(test.code)
		shown := ""
		for _, r := range o.results {
			if r.ExecutionCount == nil {
				shown += string(r.Data["text/plain"])
			}
		}
		type seen struct{ stdout, stderr, text string }
		got, want := seen{o.stdout, o.stderr, o.text()}, seen{test.stdout, test.stderr, test.text}
		if got != want || len(o.errors) > 0 || !strings.Contains(shown, test.shown) {
			t.Errorf("%q: got %q, shown %q, errors %+v, want %q, shown %q", test.code, got, shown, o.errors, want, test.shown)
		}
	}
}

// Cells that have displayed or raised something are in the notebook, without that output.
func TestNotebookOfCellsWithOutput(t *testing.T) {
	t.Parallel()
	s := attach(t, newKernel(t, richPython(t)))
	if s.run("import nbformat").reply.Status != "ok" {
		t.Skip("no nbformat in this Python")
	}
	for _, code := range []string{"1/0", "print(1); display(2); 3", "%notebook a.ipynb"} {
		s.run(code)
	}
	want := `['import nbformat', '1/0', 'print(1); display(2); 3']`
	if o := s.run("[cell.source for cell in nbformat.read('a.ipynb', 4).cells]"); o.text() != want {
		t.Errorf("got %q, %+v, want %q", o.text(), o.errors, want)
	}
}

// A magic that is used wrongly reports it on stderr. Its failure is in the reply alone, as
// in ipykernel.
func TestMagicsRefuse(t *testing.T) {
	t.Parallel()
	s := attach(t, newKernel(t, richPython(t)))
	for _, code := range []string{"%cd -", "%nothing", "%%nothing", "%autosave soon", "%less", "%edit", "%connect_info", "%qtconsole"} {
		o := s.run(code)
		if len(o.errors) > 0 || o.reply.Name != "UsageError" || len(o.reply.Traceback) > 0 || !strings.HasPrefix(o.stderr, "UsageError: ") {
			t.Errorf("%q: errors %+v, reply %+v, stderr %q, want a UsageError without a traceback in the reply and on stderr", code, o.errors, o.reply, o.stderr)
		}
	}
}
