//go:build linux

package kernel

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/must"
)

func FuzzParseLine(f *testing.F) {
	f.Add([]byte(`{"type":"stream","content":{"name":"stdout","text":"\ud800"}}` + "\n"))
	f.Add([]byte(`{"type":"reply","content":{},"id":-1}` + "\n"))
	f.Add([]byte("\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bufio.NewReaderSize(bytes.NewReader(data), 16)
		for {
			line, err := readLine(r, 64)
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, errLine) {
					t.Fatal(err)
				}
				return
			}
			m, err := parseLine(line)
			if err == nil && (m.Type == "" || !json.Valid(m.Content)) {
				t.Errorf("%q became %+v", line, m)
			}
		}
	})
}

// However the bytes are cut, the text is the same.
func FuzzDecoder(f *testing.F) {
	f.Add([]byte("aé\u2028\U0001f600\xff\xc3"), 3)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		if cut < 0 || cut > len(data) {
			return
		}
		var d decoder
		got := d.decode(data[:cut]) + d.decode(data[cut:]) + d.end()
		if !utf8.ValidString(got) {
			t.Errorf("%q became %q", data, got)
		}
		if utf8.Valid(data) && got != string(data) {
			t.Errorf("%q cut at %d became %q", data, cut, got)
		}
	})
}

func TestIPython(t *testing.T) {
	t.Parallel()
	k := newKernel(t, richPython(t))
	s := attach(t, k)
	for _, test := range []struct{ code, stdout, text string }{
		{code: "!echo out; echo err >&2", stdout: "out\nerr\n"},
		{code: "![[ ab == a* ]] && echo yes", stdout: "yes\n"}, // only bash can do it
		{code: "print('a')\n!echo b\nprint('c')", stdout: "a\nb\nc\n"},
		{code: "%%bash\necho bash", stdout: "bash\n"},
		{code: "x = !echo 1; echo 2\nx", text: "['1', '2']"},
		{code: "%cd -q /\nimport os; os.getcwd()", text: "'/'"},
		{code: "list(range(2000))[-1:] + [len(repr(list(range(2000))))]", text: "[1999, 10890]"},
		{code: "pid = os.fork()\nif pid == 0: print('child')\nelse: os.waitpid(pid, 0); print('parent')", stdout: "child\nparent\n"},
		{code: "from multiprocessing import get_context\np = get_context('fork').Process(target=print, args=('c',)); p.start(); p.join()", stdout: "c\n"},
		{code: "import sys; print(sys.modules['__main__'].pid == pid)", stdout: "True\n"},
		{code: "get_ipython().kernel.raw_input('x') if 0 else 1", text: "1"},
		{code: "import asyncio\nt = asyncio.ensure_future(asyncio.sleep(9)) ; t.cancel()\ntry: await t\nexcept asyncio.CancelledError: print('cancelled')", stdout: "cancelled\n"},
		{code: "sorted(n for n in os.listdir(os.environ['HOME']))", text: "[]"},
	} {
		if o := s.run(test.code); o.stdout != test.stdout || o.text() != test.text || len(o.errors) > 0 {
			t.Errorf("%q: stdout %q, text %q, stderr %q, errors %v, want stdout %q, text %q and no Python error", test.code, o.stdout, o.text(), o.stderr, o.errors, test.stdout, test.text)
		}
	}
	o := s.run("display({'text/latex': 'x'}, raw=True)\nfrom IPython.display import HTML, clear_output\nclear_output()\nHTML('<b>')")
	if want := "status execute_input display_data clear_output execute_result execute_reply status"; strings.Join(o.order, " ") != want || len(o.results[0].Data) != 1 {
		t.Errorf("got %v %v, want %s and one form of the result", o.order, o.results, want)
	}
	if o := s.run("1 / 0"); len(o.errors) != 1 || strings.Contains(strings.Join(o.errors[0].Traceback, ""), "\x1b") || !strings.Contains(strings.Join(o.errors[0].Traceback, ""), "----> 1 1 / 0") {
		t.Errorf("got %q, want one error whose traceback has no %q and %q", o.errors, "\x1b", "----> 1 1 / 0")
	}
	if o := s.run("object()"); len(o.results) != 1 || o.results[0].Data["application/json"] != nil {
		t.Errorf(`got %v, want one result without JSON`, o.results)
	}
}

// Lists and dicts are JSON as the service's serialiser writes them.
func TestJSON(t *testing.T) {
	t.Parallel()
	s := attach(t, newKernel(t, richPython(t)))
	if o := s.run(`import dataclasses, enum, uuid, math
class Color(enum.Enum): RED = "r"; BOTH = ("r", 1)
class Level(enum.IntEnum): LOW = 1
class Name(enum.Enum): KEY = "k"
@dataclasses.dataclass
class Point:
    x: int
    of: object = None
    _hidden: int = 3
@dataclasses.dataclass
class Slotted:
    __slots__ = ("y",)
    y: float
u = uuid.UUID(int=1)`); len(o.errors) > 0 {
		t.Fatal(o.errors)
	}
	for code, want := range map[string]string{
		"[Point(1, [Point(2, Color.RED)])]":                  `[{"of":[{"of":"r","x":2}],"x":1}]`,
		"[Slotted(math.nan), Point]":                         "",
		"[Slotted(math.nan)]":                                `[{"y":null}]`,
		"{Name.KEY: Color.BOTH, 'l': Level.LOW}":             `{"k":["r",1],"l":1}`,
		"[u, {u: u}]":                                        `["00000000-0000-0000-0000-000000000001",{"00000000-0000-0000-0000-000000000001":"00000000-0000-0000-0000-000000000001"}]`,
		"[object()]":                                         "",
		"[Point(1, object())]":                               "",
		"a = Point(1); a.of = a; [a]":                        "",
		"[(lambda p: (delattr(p, 'x'), p)[1])(Point(1, 5))]": `[{"of":5}]`,
	} {
		o := s.run(code)
		if len(o.results) != 1 {
			t.Errorf("%s: got %v and errors %v, want one result", code, o.results, o.errors)
			continue
		}
		got := string(o.results[0].Data["application/json"])
		var plain any
		if got != "" {
			must.Do(t, json.Unmarshal([]byte(got), &plain))
			sorted, err := json.Marshal(plain)
			must.Do(t, err)
			got = string(sorted)
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", code, got, want)
		}
	}
}

// A number is formatted the short way only as long as code has registered no other
// way.
func TestFormattersOfCode(t *testing.T) {
	t.Parallel()
	s := attach(t, newKernel(t, richPython(t)))
	all := "formatters = get_ipython().display_formatter.formatters\n"
	for _, test := range []struct{ code, mime, want string }{
		{code: "1", mime: "text/html"},
		{all + "formatters['text/html'].for_type(int, '<i>{}</i>'.format)\n1", "text/html", `"<i>1</i>"`},
		{all + "formatters['text/html'].pop(int)\n1", "text/html", ""},
		{all + "formatters['text/latex'].for_type(object, lambda o: 'any')\nTrue", "text/latex", `"any"`},
		{all + "formatters['text/markdown'].for_type_by_name('builtins', 'str', lambda s: 'deferred')\n'x'", "text/markdown", `"deferred"`},
		{all + "formatters['text/plain'].for_type(float, lambda f, p, cycle: p.text('float'))\n1.5", "text/plain", `"float"`},
		{"class Every(type(formatters['text/html'])):\n    def __call__(self, obj): return 'every'\nformatters['a/b'] = Every()\n2", "a/b", `"every"`},
	} {
		o := s.run(test.code)
		if len(o.results) != 1 || string(o.results[0].Data[test.mime]) != test.want {
			t.Errorf("%q: %v, errors %v, want %s", test.code, o.results, o.errors, test.want)
		}
	}
}

func TestExpressions(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, python string) {
		s := attach(t, newKernel(t, python))
		o := s.run("class A:\n    def _repr_mimebundle_(self, include=None, exclude=None): return {'a/b': {'n': float('inf'), 'bytes': b'x'}}\na = A()",
			func(r *jupyter.ExecuteRequest) {
				r.Silent = true
				r.UserExpressions = map[string]string{"good": "a", "bad": "nope"}
			})
		if good := o.reply.UserExpressions["good"]; good.Status != "ok" || string(good.Data["a/b"]) != `{"n":"inf","bytes":"eA=="}` {
			t.Errorf("got %+v %s, want status %q and %s", good, good.Data["a/b"], "ok", `{"n":"inf","bytes":"eA=="}`)
		}
		if bad := o.reply.UserExpressions["bad"]; bad.Status != "error" || bad.Name != "NameError" {
			t.Errorf("got %+v, want status %q and %q", bad, "error", "NameError")
		}
		if got, want := strings.Join(o.order, " "), "status execute_reply status"; got != want {
			t.Errorf("silent is not silent: %s, want %s", got, want)
		}
	})
}

func TestResultOverTheLimitIsSaid(t *testing.T) {
	t.Parallel()
	s := attach(t, newKernel(t, richPython(t)))
	o := s.run("display({'text/plain': 'small', 'text/html': 'x' * (33 << 20)}, raw=True)")
	if want := "text/html is left out of a result"; len(o.results) != 1 || len(o.results[0].Data) != 1 || !strings.Contains(o.stderr, want) {
		t.Errorf("got %q %v, want one result in one form and %q in stderr", o.stderr, o.results, want)
	}
}

// This test needs pandas and matplotlib.
func TestTablesAndFigures(t *testing.T) {
	t.Parallel()
	s := attach(t, newKernel(t, richPython(t)))
	if o := s.run("import pandas, matplotlib"); len(o.errors) > 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("no pandas or no matplotlib in this Python, which CI needs")
		}
		t.Skip("no pandas or no matplotlib in this Python")
	}
	o := s.run("pandas.DataFrame({'a': [1, float('nan')], 't': pandas.to_datetime(['2020-01-01', '2021-01-01'])})")
	if want := `{"a":[1.0,"nan"],"t":["2020-01-01T00:00:00","2021-01-01T00:00:00"]}`; len(o.results) != 1 || string(o.results[0].Data["e2b/data"]) != want || o.results[0].Data["text/html"] == nil {
		t.Errorf("got %+v, want one result with HTML and the data %s", o, want)
	}
	o = s.run("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\nx = 5\nx")
	if got := strings.Join(o.order, " "); got != "status execute_input display_data execute_result execute_reply status" || o.results[0].Data["image/png"] == nil {
		t.Errorf("plt.show: %s, want %q and a picture", got, "status execute_input display_data execute_result execute_reply status")
	}
	o = s.run("plt.plot([2, 1]);")
	if len(o.results) != 1 || o.results[0].Data["image/png"] == nil {
		t.Errorf("open figure at the end of a cell: %v, want one result, a picture", o.order)
	}
}

func TestSurrogateInCode(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, python string) {
		s := attach(t, newKernel(t, python))
		r := &Request{Header: jupyter.NewHeader("execute_request", "", ""), Content: json.RawMessage(`{"code":"'\ud800'"}`)}
		must.Do(t, s.client.Submit(r))
		if o := s.wait(r); o.reply.Status != "error" {
			t.Errorf("got %+v, want reply status %q", o.reply, "error")
		}
		if o := s.run("1"); o.text() != "1" {
			t.Errorf("afterwards: %+v, want text %q", o, "1")
		}
	})
}

// A file of the user's must not stand in for a module of the standard library
// while the kernel starts.
func TestWorkingDirectoryIsNotImported(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, python string) {
		k := newKernel(t, python)
		for _, name := range []string{"json.py", "socket.py", "random.py"} {
			must.Do(t, os.WriteFile(k.spec.Dir+"/"+name, []byte("raise SystemExit"), 0o644))
		}
		_, err := k.Start(t.Context())
		must.Do(t, err)
	})
}

// Tracebacks end in the cell where it called the driver: the driver's own code means
// nothing to the author of the cell, or to a model.
func TestTracebackWithoutTheDriver(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, python string) {
		s := attach(t, newKernel(t, python))
		modern := s.run("ExceptionGroup").reply.Status == "ok"
		for code, want := range map[string]string{
			"def ask():\n    return input()\nask()":                                              "return input()",
			"import os, signal\nos.kill(os.getpid(), signal.SIGINT)":                             "os.kill(",
			"try:\n    input()\nexcept Exception as e:\n    raise KeyError from e":               "    input()",
			"import asyncio\nawait asyncio.sleep('x')":                                           "await asyncio.sleep",
			"try:\n    input()\nexcept Exception as e:\n    raise ExceptionGroup('two', [e, e])": "    input()",
		} {
			if strings.Contains(code, "ExceptionGroup") && !modern {
				continue
			}
			o := s.run(code)
			if len(o.errors) != 1 {
				t.Errorf("%q: got %d errors, want 1", code, len(o.errors))
				continue
			}
			trace := strings.Join(o.errors[0].Traceback, "\n")
			if strings.Contains(trace, "_e2bctl_kernel") || !strings.Contains(trace, want) {
				t.Errorf("%q: got the traceback %s, want %q in it and nothing of the driver", code, trace, want)
			}
		}
	})
}
