package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
)

// guarded runs code in a run of its own under a guard.
func guarded(t *testing.T, h *pythonHost, g Guard, code string) *Step {
	t.Helper()
	var rs runs
	r := h.begin(t, &rs, Params{Guard: &g})
	defer r.Close()
	step, err := r.Exec(t.Context(), code)
	if err != nil {
		t.Fatalf("%s: %v", code, err)
	}
	return step
}

// verdict returns the rule and name of the violation that ended a step, "" if nothing
// ended it, or the name of another exception.
func verdict(step *Step) string {
	switch {
	case step.Error == nil:
		return ""
	case step.Refused == nil:
		return step.Error.Name
	}
	return string(step.Refused.Rule) + " " + step.Refused.Name
}

type guardCase struct {
	allow []string
	code  string
	want  string // of verdict
}

func checkGuard(t *testing.T, cases []guardCase) {
	t.Helper()
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		for _, c := range cases {
			step := guarded(t, h, Guard{Allow: c.allow}, c.code)
			if got := verdict(step); got != c.want {
				t.Errorf("%q with %v: %q, want %q", c.code, c.allow, got, c.want)
				if step.Error != nil {
					t.Logf("%s: %s\n%s", step.Error.Name, step.Error.Value, step.Error.Traceback)
				}
			}
		}
	})
}

// TestGuardDocumentedMessages checks that the five examples of the documentation report the
// documented violations.
func TestGuardDocumentedMessages(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		for code, want := range map[string]string{
			"!echo Bad command":                                     "invalid syntax",
			"import os\nexit_code = os.system":                      "Import of os is not allowed (line 1). Allowed modules: collections, datetime",
			"import random\nrandom._os.system('echo')":              "Forbidden access to module: os (line 2)",
			"x = 1\nwhile True:\n    pass":                          "Maximum number of 1000000 iterations in While loop exceeded (line 2)",
			"from os import path":                                   "Import from os is not allowed (line 1)",
			"import numpy.random as r":                              "Import of numpy.random is not allowed (line 1)",
			"for i in range(10**7):\n    j = [i for _ in range(3)]": "Reached the max number of operations of 100000",
		} {
			g := Guard{}
			if strings.HasPrefix(code, "for") {
				g.MaxOperations = 100_000
			}
			step := guarded(t, h, g, code)
			if step.Error == nil || !strings.Contains(step.Error.Value, want) {
				t.Errorf("%q: %v, want %q", code, step.Error, want)
			}
		}
	})
}

// TestGuardImportMatching has the rows of the upstream table, with its two surprises fixed: a
// listed child does not allow names of its parent, and a forbidden module is refused at its
// import.
func TestGuardImportMatching(t *testing.T) {
	checkGuard(t, []guardCase{
		{[]string{"*"}, "import os", "import os"}, // differs: a wildcard for everything does not name it
		{[]string{"*"}, "import textwrap, json, decimal", ""},
		{[]string{"*", "os"}, "import os; os.getcwd()", ""},
		{[]string{"os.path"}, "import os", "import os"}, // differs
		{[]string{"os.path"}, "import os.path\nos.path.join('a', 'b')", ""},
		{[]string{"os.path"}, "import os.path\nos.getcwd()", "module os"},
		{[]string{"os.path"}, "import os.path as p\np.join('a', 'b')", ""}, // better
		{[]string{"os.path"}, "from os import path\npath.join('a', 'b')", ""},
		{[]string{"os.path"}, "from os import path, getcwd", "import os"},
		{[]string{"os.path"}, "from os import *", "import os"},
		{[]string{"os"}, "import os.path", "import os.path"},
		{[]string{"os.*"}, "import os.path", ""},
		{[]string{"xml.*"}, "import xml.etree.ElementTree as e\ne.fromstring('<a/>').tag", ""},
		{[]string{"xml.*"}, "import xml", ""},
		{[]string{"xml"}, "import xml.dom", "import xml.dom"},
		{[]string{"xml.dom"}, "import xml.dom\nxml.dom.Node", ""},
		{[]string{"xml.dom"}, "import xml", "import xml"}, // differs
		{[]string{"xml.dom"}, "import xml.dom.minidom", "import xml.dom.minidom"},
		{[]string{"json.*"}, "import jsonx", "import jsonx"},
		{[]string{"xml"}, "from xml import dom as d", "module xml.dom"}, // better: at the import
		{[]string{"os.path"}, "import posixpath", "import posixpath"},
		{[]string{"os.*"}, "import os\nos.path.join('a', 'b')", ""},
	})
}

func TestGuardImports(t *testing.T) {
	checkGuard(t, []guardCase{
		{nil, "print('not reached')\nimport os", "import os"},
		{nil, "def f():\n    import os", "import os"},
		{nil, "import " + strings.Join(GuardModules(), ", "), ""},
		{nil, "import collections; collections.abc", "module collections.abc"},
		{nil, "import statistics; statistics.math.sqrt(4)", ""},
		{nil, "import builtins", "import builtins"},
		{[]string{"builtins"}, "import builtins; builtins.len([])", ""},
		{[]string{"string"}, "from string import *\nascii_letters", ""},
		{[]string{"xml"}, "from xml import *", ""},
		{nil, "try:\n    import os\nexcept Exception as e:\n    print(e)", ""},
		{nil, "try:\n    import os\nexcept ImportError:\n    os = None", ""},
		{nil, "try:\n    import os\nfinally:\n    pass", "import os"},
		{nil, "from . import os", "ImportError"},
		{nil, "__import__('o' + 's')", "function __import__"},
		{nil, "import math as __builtins__", "dunder __builtins__"},
		{nil, "class __builtins__: pass", "dunder __builtins__"},
		{nil, "try:\n    1/0\nexcept Exception as __builtins__: pass", "dunder __builtins__"},
		{nil, "from math import nothing", "ImportError"},
		{nil, "from collections import __builtins__ as b", "dunder __builtins__"},
		{nil, "try:\n    from collections import __dict__ as d\nexcept Exception:\n    pass", "dunder __dict__"},
	})
}

// TestGuardImportsOfTheTutorial checks that the modules that the tutorial lists, and that the
// interpreter described there refuses, have to be listed here, too.
func TestGuardImportsOfTheTutorial(t *testing.T) {
	var cases []guardCase
	for _, module := range []string{"json", "functools", "string", "textwrap", "copy", "enum", "typing"} {
		cases = append(cases, guardCase{nil, "import " + module, "import " + module}, guardCase{[]string{module}, "import " + module, ""})
	}
	for _, module := range []string{"os", "subprocess", "socket", "shutil", "sys", "importlib", "ctypes", "pickle"} { // must never be allowed
		cases = append(cases, guardCase{[]string{"*"}, "import " + module, "import " + module})
	}
	checkGuard(t, cases)
}

// TestGuardNumpy uses a package with compiled parts, if it is installed.
func TestGuardNumpy(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		needNumpy(t, h)
		for _, c := range []guardCase{
			{[]string{"numpy"}, "import numpy as np; np.random.rand(1)", "module numpy.random"},
			{[]string{"numpy"}, "from numpy import random as r", "module numpy.random"},
			{[]string{"numpy"}, "from numpy import *\narray([1]).sum()", ""},
			{[]string{"numpy.*"}, "import numpy as np; np.random.rand(1)", ""},
			{[]string{"numpy", "numpy.random"}, "import numpy as np; np.random.rand(1)", ""},
			{[]string{"numpy.random"}, "import numpy.random\nnumpy.random.rand(1)", ""},
			{[]string{"numpy.random"}, "import numpy.random\nnumpy.array([1])", "module numpy"},
			{[]string{"numpy.*"}, "import numpy as np\nnp.linalg.norm(np.ones(3)) + np.arange(3).mean(); np.__version__", ""},
		} {
			if got := verdict(guarded(t, h, Guard{Allow: c.allow}, c.code)); got != c.want {
				t.Errorf("%q with %v: %q, want %q", c.code, c.allow, got, c.want)
			}
		}
	})
}

func TestGuardSideways(t *testing.T) {
	checkGuard(t, []guardCase{
		{nil, "import random\nrandom._os.system(':')", "module os"},
		{nil, "import queue\nqueue.threading.Thread", "module threading"},
		{[]string{"threading"}, "import queue\nqueue.threading._os", "module os"},
		{nil, "import statistics\nstatistics.sys", "module sys"},
		{[]string{"warnings"}, "import warnings\nwarnings.sys", "module sys"},
		{[]string{"doctest"}, "import doctest\ndoctest.inspect.os", "module inspect"},
		{[]string{"doctest", "inspect"}, "import doctest\ndoctest.inspect.os", "module os"},
		{[]string{"asyncio"}, "import asyncio\nasyncio.base_events.events", "module asyncio.base_events"},
		{[]string{"asyncio", "asyncio.base_events"}, "import asyncio\nasyncio.base_events.events.subprocess", "module asyncio.events"},
		{[]string{"sys"}, "import sys\nsys.modules['os']", "module os"},
		{[]string{"sys"}, "import sys\nsys.modules.get('subprocess')", "module subprocess"},
		{[]string{"sys"}, "import sys\nsys.modules['math'].pi", ""},
		{[]string{"importlib"}, "import importlib\nimportlib.import_module('os')", "import os"},
		{[]string{"importlib"}, "import importlib\nimportlib.import_module('math').pi", ""},
		{[]string{"warnings"}, "import warnings\nlist(map(getattr, [warnings], ['sys']))", "module sys"},
		{[]string{"warnings", "functools"}, "import warnings, functools\nfunctools.partial(getattr, warnings)('sys')", "module sys"},
		{[]string{"warnings"}, "import warnings\nlist(filter(lambda n: getattr(warnings, n), ['sys']))", "module sys"},
		{[]string{"warnings"}, "import warnings\nwarnings.catch_warnings()._module.sys", "module sys"},
		{[]string{"sys"}, "import sys\nsys._getframe().f_builtins['__import__']", "frame f_builtins"},
		{[]string{"builtins"}, "import builtins\nbuiltins.exec('1')", "function exec"},
		{[]string{"os"}, "import os\nos.system(':')", "process os.system"},
		{[]string{"os"}, "import os\nos.popen(':')", "process subprocess.Popen"},
		{[]string{"os"}, "import os\nos.fork()", "process os.fork"},
		{[]string{"subprocess"}, "import subprocess\nsubprocess.run(['true'])", "process subprocess.Popen"},
		{[]string{"socket"}, "import socket\nsocket.socket().connect(('127.0.0.1', 9))", "network socket.connect"},
		{nil, "callable.__self__.exec", "dunder __self__"},
		{[]string{"posix"}, "import posix\nposix.system(':')", "process os.system"},
		{[]string{"pty"}, "import pty\npty.spawn(['true'])", "process pty.spawn"},
		{[]string{"ctypes"}, "import ctypes\nctypes.CDLL(None)", "process ctypes.dlopen"},
		{[]string{"sys"}, "import sys\nsys.modules['nothing']", "KeyError"},
		{[]string{"builtins"}, "import builtins\nbuiltins.__import__('os')", "dunder __import__"},
		{nil, "import statistics\ntry:\n    statistics.nothing\nexcept AttributeError as e:\n    assert getattr(e, 'obj', None) in (None, statistics)", ""}, // not the module itself
		{[]string{"ctypes"}, "import ctypes\nctypes.c_long.from_address(0)", "process ctypes.cdata"},
		{nil, "license._Printer__filenames = ['/etc/hostname']\nlicense()", "NameError"},
		{nil, "_dh[0]", "NameError"}, // a path, which can open files
	})
}

// TestGuardStandIns checks that the stand-ins for modules, for sys.modules and for the
// functions of builtins lead to nothing else, and that rewritten code asks the guard alone.
func TestGuardStandIns(t *testing.T) {
	checkGuard(t, []guardCase{
		{nil, "__package__ = 'os'\nfrom . import system", "ImportError"},
		{nil, "__name__ = 'os'\nfrom .path import join", "ImportError"},
		{[]string{"builtins"}, "import builtins\nbuiltins.license", "AttributeError"},
		{[]string{"builtins"}, "import builtins\ngetattr(builtins, 'license')", "AttributeError"},
		{[]string{"builtins"}, "import builtins\nassert builtins.len([1]) == 1", ""},
		{[]string{"sys"}, "import sys\nsys.modules._guard", "AttributeError"},
		{[]string{"sys"}, "import sys\nassert 'sys' in sys.modules and 'sys' in list(sys.modules)", ""},
		{[]string{"importlib"}, "import importlib, statistics\nimportlib.reload(statistics).sys", "module sys"},
		{[]string{"importlib"}, "import importlib\nclass S:\n    def startswith(self, x): return False\n    def __iter__(self): return iter('math')\n    def __hash__(self): return hash('os')\n    def __eq__(self, o): return True\nimportlib.import_module(S()).getcwd()", "TypeError"},
		{[]string{"importlib"}, "import importlib\nclass S(str): pass\nimportlib.import_module(S('os'))", "import os"},
		{[]string{"*"}, "import _e2bctl_guard\n_e2bctl_guard.disarm()", "import _e2bctl_guard"},
		{[]string{"*"}, "import __main__", "import __main__"},
		{[]string{"*"}, "import zipimport", "import zipimport"},
		{[]string{"warnings"}, "import warnings\ngot = []\nclass C:\n    def __radd__(self, other): got.append(other)\nw = warnings.catch_warnings()\nw._module += C()\ngot[0].sys", "module warnings"},
		{[]string{"warnings"}, "import warnings\nclass C:\n    def __init__(self): self._n = 1\nc = C()\nc._n += 1\nassert c._n == 2", ""},
		{nil, "got = []\nclass D(dict):\n    def __getitem__(self, key):\n        if key.startswith('__e2bctl'): return got.append\n        return dict.__getitem__(self, key)\n" +
			"class M(type):\n    @classmethod\n    def __prepare__(self, *a): return D()\nclass C(metaclass=M):\n    'documented'\n    import math as m\n    while not got: x = m; break\n    m._y = 1\n    try: m._x\n    except AttributeError: pass\nassert not got", ""},
		{nil, "from __future__ import annotations\ndef f(x: nothing): return x\nassert f(1) == 1", ""},
		{nil, "help('zz')", "function help"},
	})
}

// TestGuardSidewaysToTheDangerous checks that the functions of builtins are refused under
// that name, too, and that dangerous modules that are loaded cannot be reached through
// sys.modules.
func TestGuardSidewaysToTheDangerous(t *testing.T) {
	var cases []guardCase
	for _, name := range DangerousFunctions() {
		cases = append(cases, guardCase{[]string{"builtins"}, "import builtins\nbuiltins." + name + "('1')", "function " + name})
	}
	for _, name := range DangerousModules() {
		if name != "sys" {
			code := fmt.Sprintf("import sys\nif %q not in sys.modules: raise LookupError\nsys.modules[%[1]q]", name)
			cases = append(cases, guardCase{[]string{"sys"}, code, "module " + name})
		}
	}
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		for _, c := range cases {
			step := guarded(t, h, Guard{Allow: c.allow}, c.code)
			if got := verdict(step); got != c.want && got != "LookupError" && !strings.HasPrefix(got, "module ") {
				t.Errorf("%q: %q, want %q", c.code, got, c.want)
			}
		}
	})
}

func TestGuardDunders(t *testing.T) {
	checkGuard(t, []guardCase{
		{nil, "().__class__", "dunder __class__"},
		{nil, "print.__self__", "dunder __self__"},
		{nil, "{}.__class__.__base__.__subclasses__()", "dunder __subclasses__"},
		{nil, "try:\n    1/0\nexcept Exception as e:\n    e.__traceback__.tb_frame", "frame tb_frame"},
		{nil, "import random\nrandom.__dict__['_os']", "dunder __dict__"},
		{nil, "getattr((), '__class__')", "dunder __class__"},
		{nil, "class S(str):\n    pass\ngetattr((), S('__class__'))", "dunder __class__"},
		{nil, "setattr(print, '__self__', 1)", "dunder __self__"},
		{nil, "f = lambda: 1\nf.__getattribute__('x')", "dunder __getattribute__"},
		{nil, "'s'.__dir__()", "dunder __dir__"},
		{nil, "(i for i in [1]).gi_frame", "frame gi_frame"},
		{nil, "(i for i in [1]).gi_code.replace(co_names=('__globals__',))", "frame gi_code"},
		{nil, "__builtins__['eval']", "dunder __builtins__"},
		{nil, "__builtins__ = {}", "dunder __builtins__"},
		{nil, "'abc'.__str__()", ""},
		{nil, "class A:\n    def __init_subclass__(cls, **kw): super().__init_subclass__(**kw)\nclass B(A): pass", ""},
		{nil, "try:\n    raise ValueError from KeyError()\nexcept ValueError as e:\n    e.__cause__, e.__context__", ""},
		{nil, "'abc'.__len__()", ""}, // differs: leads nowhere
		{nil, "hasattr((), '__class__')", ""},
		{nil, "[c for c in ().__class__.__base__.__subclasses__() if c.__name__ == 'Popen'][0](['true'])", "dunder __subclasses__"},
		{nil, "[c for c in ().__class__.__base__.__subclasses__() if c.__name__ == 'BuiltinImporter'][0]().load_module('os')", "dunder __subclasses__"},
		{nil, "[c for c in ().__class__.__base__.__subclasses__() if c.__name__ == 'catch_warnings'][0]()._module", "dunder __subclasses__"},
		{nil, "type(())", ""},
		{nil, "type(()).mro()", ""}, // leads to object, whose subclasses it does not return
		{nil, "type(()).mro()[-1].__subclasses__()", "dunder __subclasses__"},
		{nil, "class A:\n    def __init__(self):\n        self._x = 1\n    def __add__(self, o):\n        return self._x + o._x\nA() + A()", ""},
		{nil, "class A:\n    def __init__(self):\n        self.__x = 1\n    def x(self):\n        return self.__x\nA().x()", ""},
		{nil, "from collections import namedtuple\nnamedtuple('P', 'x')(1)._asdict()", ""},
	})
}

// TestGuardOperations checks that operations that upstream's interpreter lacks are ordinary
// Python here, and that functions that it refuses to call are refused.
func TestGuardOperations(t *testing.T) {
	var cases []guardCase
	for _, name := range DangerousFunctions() {
		cases = append(cases, guardCase{nil, "f = " + name + "\nf('1')", "function " + name})
	}
	checkGuard(t, append(cases, []guardCase{
		{nil, "def f():\n    global x\n    yield 1\nasync def g(): pass\n(y := 5)", ""},
		{nil, "def f():\n    n = 0\n    def g():\n        nonlocal n\n        n += 1\n    g()\n    return n\nassert f() == 1", ""},
		{nil, "match [1, 2]:\n    case [1, x]:\n        assert x == 2", ""},
		{nil, "print = 3\nassert print == 3\ndel print\nprint(1)", ""}, // the namespace belongs to the code
		{nil, "dir(), repr(1), hash(1), id(1), bytes(1), frozenset(), slice(1), object()", ""},
		{nil, "raise", "RuntimeError"},
		{nil, "x = [1]\nx += 1", "TypeError"},
		{nil, "{'Bhutan': 1}['Butan']", "KeyError"}, // better: no guess
		{nil, "1/0", "ZeroDivisionError"},
		{nil, "undefined_thing", "NameError"},
		{nil, "value = 3\nvalu + 1", "NameError"}, // better: no guess
		{nil, "class A:\n    @staticmethod\n    def f(): return 1\nassert A.f() == 1", ""},
		{nil, "del zz", "NameError"},
		{nil, "a, b = 1, 2, 3", "ValueError"},
		{nil, "a = ;", "SyntaxError"},
		{nil, "assert 1 == 2", "AssertionError"},
		{nil, "x = 0\nwhile x < 5:\n    x += 1\n    if x == 2:\n        continue\nelse:\n    x = 10\nassert x == 10", ""},
		{nil, "x = 0\nwhile x < 5:\n    x += 1\n    break\nelse:\n    x = 10\nassert x == 1", ""},
		{nil, "def f():\n    n = 0\n    while (n := n + 1) < 9:\n        pass\n    return n\nassert f() == 9", ""},
		{nil, "for i in [1]:\n    while False:\n        pass\n    else:\n        break", "syntax while"},
		{nil, "try:\n    while True:\n        pass\nexcept Exception:\n    pass", ""},
		{nil, "x = " + strings.Repeat("(", 50) + "1" + strings.Repeat(")", 50), ""},
		{nil, "x = 1" + strings.Repeat(" + 1", 600), ""}, // as deep as Python can compile
	}...))
}

// TestGuardBudgets checks that budgets are those of a step or of a loop, not of the run.
func TestGuardBudgets(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		var rs runs
		r := h.begin(t, &rs, Params{Guard: &Guard{MaxIterations: 100, MaxOperations: 1000}})
		for code, want := range map[string]string{
			"n = 0\nfor _ in range(5):\n    n = 0\n    while n < 100:\n        n += 1":                       "",
			"n = 0\nwhile n < 101:\n    n += 1":                                                              "loop while",
			"def f(n):\n    return f(n - 1) if n else 0\nf(500)":                                             "",
			"g = lambda n: g(n - 1) if n else 0\n[g(9) for _ in range(100)]":                                 "operations operations",
			"{i: i for i in range(1001)}":                                                                    "operations operations",
			"sum(i for i in range(1001))":                                                                    "operations operations",
			"for i in range(1001): pass":                                                                     "operations operations",
			"sum(range(10**6))":                                                                              "",
			"n = 0\nfor _ in range(9):\n    n = 0\n    while n < 100: n += 1\nfor i in range(91): pass":      "", // a thousand
			"n = 0\nfor _ in range(9):\n    n = 0\n    while n < 100: n += 1\nfor i in range(92): pass":      "operations operations",
			"def h():\n    for i in range(400): pass\nh(); h()":                                              "",
			"def k():\n    for i in range(400): pass\nk(); k(); k()":                                         "operations operations", // not a limit for each call
			"try:\n    for i in range(1001): pass\nexcept Exception:\n    pass\nlist(map(lambda i: i, [1]))": "operations operations", // after it was caught, not even one more
		} {
			step, err := r.Exec(t.Context(), code)
			must.Do(t, err)
			if got := verdict(step); got != want {
				t.Errorf("%q: %q, want %q", code, got, want)
			}
		}
	})
}

// TestGuardReports checks that a violation that code caught is still reported, and so are its
// imports.
func TestGuardReports(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		step := guarded(t, h, Guard{}, "import math, random\ntry:\n    import os\nexcept ImportError:\n    pass\ntry:\n    open('f')\nexcept Exception:\n    pass\nmath.floor(2.5)")
		if diff := cmp.Diff([]Violation{
			{"import", "os", 3, "Import of os is not allowed", "Allowed modules: " + strings.Join(GuardModules(), ", ")},
			{"function", "open", 7, "Forbidden function evaluation: open", "Do it with plain Python, an allowed module or a tool"},
		}, step.Violations); diff != "" {
			t.Errorf("violations (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"math", "random"}, step.Imports); diff != "" {
			t.Errorf("imports (-want +got):\n%s", diff)
		}
		if got := string(step.Value.Bytes()); got != `{"v":1,"value":2}` {
			t.Errorf("value %s, want %s", got, `{"v":1,"value":2}`)
		}
		step = guarded(t, h, Guard{}, "1\nimport os")
		if step.Error == nil || step.Error.Line != 2 || step.Refused == nil || step.Refused.Line != 2 {
			t.Errorf("got the exception %+v for %+v, want both in line 2", step.Error, step.Refused)
		}
		if got, want := step.Observation(), "Error:\nGuardViolation: "+step.Violations[0].String()+"\n"; got != want {
			t.Errorf("the model sees %q, want %q", got, want)
		}
		step = guarded(t, h, Guard{}, "for i in range(1000):\n    try:\n        open('f')\n    except Exception:\n        pass")
		if len(step.Violations) != 100 {
			t.Errorf("%d violations are kept, want 100", len(step.Violations))
		}
	})
}

// TestGuardAudit checks that the audit has violations in full.
func TestGuardAudit(t *testing.T) {
	t.Parallel()
	h := newPythonHost(t, "plain")
	var rs runs
	var audit bytes.Buffer
	r := h.begin(t, &rs, Params{Guard: &Guard{}, Audit: &audit})
	_, err := r.Exec(t.Context(), "import math\nimport os")
	must.Do(t, err)
	must.Do(t, r.Close())
	for line := range strings.Lines(audit.String()) {
		var step struct {
			Event   string
			Blocked []map[string]any
		}
		must.Do(t, json.Unmarshal([]byte(line), &step))
		if step.Event != "step" {
			continue
		}
		want := []map[string]any{{
			"rule": "import", "name": "os", "line": 2.0, "message": "Import of os is not allowed",
			"suggestion": "Allowed modules: " + strings.Join(GuardModules(), ", "),
		}}
		if diff := cmp.Diff(want, step.Blocked); diff != "" {
			t.Errorf("blocked (-want +got):\n%s", diff)
		}
		return
	}
	t.Errorf("the audit has no step: %s", &audit)
}

// TestGuardEnds checks that after Close the guard is off and its stand-ins are gone, and that
// names defined under it still work.
func TestGuardEnds(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		var rs runs
		r := h.begin(t, &rs, Params{})
		mustExec(t, r, "import os, math\nbefore = os, math")
		r.Close()
		r = h.begin(t, &rs, Params{Guard: &Guard{}})
		if step, err := r.Exec(t.Context(), "os.getcwd()"); err != nil || verdict(step) != "module os" {
			t.Errorf("what was imported before: %q, %v, want %q and no error", verdict(step), err, "module os")
		}
		mustExec(t, r, "import random\nassert math.floor(1.5) == 1\ndef f(): return open\ndef g():\n    n = 0\n    while n < 1000001: n += 1\n    return n")
		r.Close()
		r = h.begin(t, &rs, Params{})
		mustExec(t, r, "import sys\nassert before == (os, math) and random is sys.modules['random']\nassert g() == 1000001\nimport subprocess\nsubprocess.run(['true'])\nwith f()('/dev/null') as file: file.read()\neval('1')\nassert __import__('os') is os\n().__class__\nopen('/dev/null').close()")
		if h.engine == "ipython" {
			mustExec(t, r, "assert '_Guard' not in [type(t).__name__ for t in get_ipython().ast_transformers]")
		}
	})
}

// TestGuardLeftOver checks that a guard that was never removed does not outlive the next Begin.
func TestGuardLeftOver(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		var one, two runs
		h.begin(t, &one, Params{Guard: &Guard{}}) // another handle, which died
		r := h.begin(t, &two, Params{})
		mustExec(t, r, "import os\nos.getcwd()")
	})
}

func TestGuardOtherKernel(t *testing.T) {
	t.Parallel()
	h := newPythonHost(t, "plain")
	var rs runs
	r := h.begin(t, &rs, Params{Guard: &Guard{}})
	h.restart(t)
	if _, err := r.Exec(t.Context(), "1"); !errors.Is(err, sandbox.ErrKernelDied) {
		t.Errorf("got %v, want sandbox.ErrKernelDied", err)
	}
}

// TestGuardLeavesWhatWasThere checks that code from before a guard runs under it as it does
// without, even if the run's code changes the names that it looks up.
func TestGuardLeavesWhatWasThere(t *testing.T) {
	const before = `import math, os, sys
x = 1
def before():
    def nested():
        import json
        return json.loads('3'), sys.modules['os'].sep, os.environ is not None, os.path.sep, eval('x'), globals()['x'], list(vars()), open(os.devnull).read()
    return nested()`
	const unchanged = "\nassert before() == (3, '/', True, '/', 1, 1, ['json'], '')"
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		for _, c := range []struct {
			guard Guard
			code  string
			want  string // of verdict
		}{
			{Guard{}, unchanged, ""},
			{Guard{Allow: []string{"sys", "os.path"}}, "import sys, os.path" + unchanged, ""},
			{Guard{Allow: []string{"sys", "os.path"}}, "import sys, os.path\nos.getcwd()", "module os"},
			{Guard{Allow: []string{"sys"}}, "import sys\nsys.modules['os']", "module os"},
			{Guard{}, "os.getcwd()", "module os"},
			{Guard{}, "def f(): return [os]\nf()[0].getcwd()", "module os"},
			{Guard{}, "got = []\nclass C:\n    def __radd__(self, o): got.append(o); return o\nos += C()\ngot[0].getcwd()", "module os"},
			{Guard{}, "class C:\n    def __radd__(self, o): return o\ntry:\n    os += C()\nfinally: pass\nos.getcwd()", "module os"},
			{Guard{}, "os = 5\nos += 1\ndef f(os):\n    os += 1\n    return os\nassert f(os) == 7", ""},
			{Guard{}, "import random\nassert math.floor(1.5) == 1 and f'{os}'\ndel os\nos", "NameError"},
			{Guard{Functions: []string{"globals"}}, "assert globals()['os'].getcwd()", ""}, // a known hole
		} {
			var rs runs
			r := h.begin(t, &rs, Params{})
			mustExec(t, r, before)
			r.Close()
			step := guarded(t, h, c.guard, c.code)
			if got := verdict(step); got != c.want {
				t.Errorf("%q: %q, want %q", c.code, got, c.want)
				if step.Error != nil {
					t.Log(step.Error.Traceback)
				}
			}
		}
	})
}

// TestGuardPrivatePatterns checks that a pattern may have a name with an underscore, though it
// cannot be rewritten.
func TestGuardPrivatePatterns(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		const class = "class C:\n    _A = 1\n    class _P:\n        _x = 1\n    class D:\n        _B = 'b'\nok = False\n"
		for code, want := range map[string]string{
			"match 1:\n    case C._A: ok = True\nassert ok":                                       "",
			"match [0, 1]:\n    case [0, (2 | C._A) as x]: ok = True\nassert ok and x == 1":       "",
			"match C._P():\n    case C._P(): ok = True\nassert ok":                                "",
			"match C._P():\n    case C._P(_x=C._A): ok = True\nassert ok":                         "",
			"match {'b': 1}:\n    case {C.D._B: C._A, **rest}: ok = True\nassert ok and not rest": "",
			"match [C._P(), 1]:\n    case [C._P(), *_]: ok = True\nassert ok":                     "",
			"match 1:\n    case 1 if C._A: ok = C._A\nassert ok":                                  "",
			"match 1:\n    case C.__dict__: pass":                                                 "dunder __dict__",
			"match 1:\n    case {C.gi_frame: 1}: pass":                                            "frame gi_frame",
		} {
			if got := verdict(guarded(t, h, Guard{}, class+code)); got != want && got != "SyntaxError" {
				t.Errorf("%q: %q, want %q", code, got, want)
			}
		}
	})
}

// TestGuardPatternsOfModules checks that patterns lead to stand-ins. Python has patterns from
// 3.10 on.
func TestGuardPatternsOfModules(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		const before = "import warnings\ngot = []\nw = warnings.catch_warnings()\n" +
			"class E:\n    def __eq__(self, other): got.append(other)\n    def __hash__(self): return hash('x')\n" +
			"class M(type):\n    def __instancecheck__(self, o): return True\n" +
			"class P(metaclass=M):\n    __match_args__ = ('_' + 'module',)\n    _HIDDEN = 1\n    class Q: _x = 2\n"
		for code, want := range map[string]string{
			"match E():\n    case w._module: pass":                                                     "module warnings",
			"match [E()]:\n    case [w._module | 1]: pass":                                             "module warnings",
			"match {E(): 1}:\n    case {w._module: 1}: pass":                                           "module warnings",
			"match E():\n    case w._module.sys: pass":                                                 "module warnings",
			"match w:\n    case warnings.catch_warnings(_module=m): m.sys":                             "module sys",
			"match w:\n    case warnings.catch_warnings(_module=m) if m.sys: pass":                     "module sys",
			"match w:\n    case warnings.catch_warnings(_module=1 | (m)): m.sys":                       "module sys",
			"match [w]:\n    case [P(m), *_] | [P([m]), *_]: m.sys":                                    "module sys",
			"def f():\n    match w:\n        case P(object() as m): return lambda: m.sys\nf()()":       "module sys",
			"def f():\n    global m\n    match w:\n        case P(m): pass\nf()\nm.sys":                "module sys",
			"match w:\n    case P(m): assert m.warn":                                                   "",
			"match 1:\n    case P._HIDDEN: got = True\nassert got":                                     "",
			"match 2:\n    case P.Q._x: got = True\nassert got":                                        "",
			"match P.Q():\n    case P.Q(_x=x) if x == 2: got = x\nassert got == 2":                     "",
			"match P.Q():\n    case P.Q(_x=x) if x == 3: got = x\n    case _: got = 0\nassert not got": "",
			"match 1:\n    case int(x) | str(x): got = x\nassert got == 1":                             "",
		} {
			if got := verdict(guarded(t, h, Guard{Allow: []string{"warnings"}}, before+code)); got != want && got != "SyntaxError" {
				t.Errorf("%q: %q, want %q", code, got, want)
			}
		}
	})
}

// TestGuardPatterns checks that patterns with names of earlier imports are refused, because
// patterns cannot be rewritten. Python has them from 3.10 on.
func TestGuardPatterns(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		for code, want := range map[string]string{
			"match '/':\n    case os.sep: pass":                           "syntax os",
			"match {}:\n    case {os.sep: 1}: pass":                       "syntax os",
			"match '/':\n    case datetime.date(): pass":                  "syntax datetime",
			"import datetime\nmatch '/':\n    case datetime.date(): pass": "",
		} {
			var rs runs
			r := h.begin(t, &rs, Params{})
			mustExec(t, r, "import datetime, os")
			r.Close()
			step := guarded(t, h, Guard{}, code)
			if got := verdict(step); got != want && got != "SyntaxError" {
				t.Errorf("%q: %q, want %q", code, got, want)
			}
		}
	})
}

// TestGuardKnownHoles has the known ways around the guard, in the order of the list in its
// documentation. A way that gets closed moves to the tables above.
func TestGuardKnownHoles(t *testing.T) {
	checkGuard(t, []guardCase{
		{[]string{"warnings"}, "import warnings\nclass C(warnings.catch_warnings):\n    def os(self):\n        return self._module.sys.modules['os']\nC().os().getcwd()", ""},
		{nil, "assert '{0.__class__}'.format(()) == \"<class 'tuple'>\"", ""},
		{[]string{"operator"}, "import operator\noperator.attrgetter('__class__')(())", ""},
		{[]string{"string"}, "import string\nstring.Formatter().get_field('0.__class__', [()], {})", ""},
		{[]string{"functools"}, "import functools, random\nd = {}\nclass C:\n    __globals__ = d\nfunctools.update_wrapper(C, random.Random.seed, (), ('__globals__',))\nassert d", ""},
		{[]string{"timeit"}, "import timeit\ntimeit.timeit('import os; os.getcwd()', number=1)", ""},
		{[]string{"pkgutil"}, "import pkgutil\npkgutil.resolve_name('os:getcwd')()", ""},
		{[]string{"codecs"}, "import codecs\ncodecs.open('/dev/null').close()", ""},
		{[]string{"pickle"}, "import pickle\nassert pickle.loads(b'cposix\\ngetcwd\\n(tR.')", ""},
		{[]string{"gc"}, "import gc\n[m for m in gc.get_objects() if type(m) is type(gc) and m.__name__ == 'os'][0].getcwd()", ""},
		{[]string{"inspect"}, "import inspect\ninspect.getmodule(inspect.getmodule).os", ""},
	})
}

// TestGuardKnownHoleOfMatch does the same with the match statement, which Python has from 3.10
// on.
func TestGuardKnownHoleOfMatch(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		step := guarded(t, h, Guard{}, "class M(type):\n    def __instancecheck__(self, o): return True\n"+
			"class C(metaclass=M):\n    __match_args__ = ('__class__',)\nmatch ():\n    case C(c): assert c is tuple")
		if got := verdict(step); got != "" && got != "SyntaxError" {
			t.Errorf("%q", got)
		}
	})
}

// TestGuardKnownHolesOfPandas does the same with packages that have compiled parts.
func TestGuardKnownHolesOfPandas(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		needNumpy(t, h)
		path := filepath.Join(t.TempDir(), "pickle")
		for _, code := range []string{
			"x = ()\nassert pandas.DataFrame({'a': [1]}).eval('b = @x.__class__.__name__').b[0] == 'tuple'",
			"pandas.compat._optional.import_optional_dependency('os').getcwd()",
			"numpy.save('" + path + ".npy', numpy.ones(1))\npandas.DataFrame({'a': [1]}).to_csv('" + path + "')\npandas.read_csv('" + path + "')",
			"numpy.savetxt('" + path + "', ['cposix', 'getcwd', '(tR.'], fmt='%s')\nassert pandas.read_pickle('" + path + "')",
		} {
			step := guarded(t, h, Guard{Presets: []Preset{DataAnalysis}}, "import numpy, pandas\n"+code)
			if step.Error != nil {
				t.Errorf("%q: got %v, want nil", code, step.Error)
			}
		}
	})
}

// needNumpy skips a test where Python has no numpy and pandas, except in CI.
func needNumpy(t *testing.T, h *pythonHost) {
	t.Helper()
	if verdict(guarded(t, h, Guard{Presets: []Preset{DataAnalysis}}, "import numpy, pandas")) == "" {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("python3 has no numpy and pandas, which CI needs: put the Python of e2bctl local setup first in PATH")
	}
	t.Skip("python3 has no numpy and pandas: the guard is not tested with them")
}

// TestGuardTampering checks that the obvious ways to remove the guard fail.
func TestGuardTampering(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		var rs runs
		r := h.begin(t, &rs, Params{Guard: &Guard{Allow: []string{"builtins", "sys", "threading", "gc"}}})
		for _, code := range []string{
			"import builtins\nbuiltins.__import__ = lambda *a: None",
			"setattr(builtins, 'eval', len)",
			"import sys\nsys.modules.clear()",
			"sys.modules['_e2bctl_guard']",
			"sys.addaudithook(lambda *a: None)",
			"globals().clear()",
			"del __builtins__",
			"def __e2bctl_turns__(line): pass",
			"get_ipython().ast_transformers.clear()",
			"exit._ip",
			"import _e2bctl_guard",
			"x = 1" + strings.Repeat(" + 1", 5000), // a transformer that fails would be removed
		} {
			if _, err := r.Exec(t.Context(), code); err != nil {
				t.Fatalf("%q: %v", code, err)
			}
			for check, want := range map[string]string{
				"import os": "import os",
				"try:\n    import os\nexcept ImportError:\n    raise": "import os",
				"eval('1')": "function eval",
				"import threading\nseen = []\ndef f():\n    try:\n        import os\n    except ImportError:\n        seen.append(1)\nt = threading.Thread(target=f); t.start(); t.join()\nassert seen": "",
			} {
				step, err := r.Exec(t.Context(), check)
				must.Do(t, err)
				if got := verdict(step); got != want {
					t.Errorf("after %q, %q: %q, want %q", code, check, got, want)
				}
			}
		}
	})
}

// TestGuardRepair checks that removing the guard's check is reported and undone.
func TestGuardRepair(t *testing.T) {
	t.Parallel()
	h := newPythonHost(t, "plain")
	var rs runs
	r := h.begin(t, &rs, Params{Guard: &Guard{Allow: []string{"gc"}}})
	step := mustExec(t, r, "import gc\n[o for o in gc.get_objects() if type(o) is list and '_Guard' in [type(x).__name__ for x in o]][0].clear()")
	if len(step.Violations) != 1 || step.Violations[0].Rule != "tampering" {
		t.Errorf("got %+v, want one violation of the rule %q", step.Violations, "tampering")
	}
	if step, err := r.Exec(t.Context(), "().__class__"); err != nil || verdict(step) != "dunder __class__" {
		t.Errorf("got %q, %v, want %q and no error", verdict(step), err, "dunder __class__")
	}
}

func TestGuardFields(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		for _, c := range []struct {
			guard Guard
			code  string
			want  string
		}{
			{Guard{Presets: []Preset{TextProcessing}}, "import re, string, textwrap, collections", ""},
			{Guard{Presets: []Preset{Utilities}}, "import json, datetime, collections, itertools, functools", ""},
			{Guard{Presets: []Preset{Science}}, "import statistics, math", ""},
			{Guard{Presets: []Preset{TextProcessing}}, "import json", "import json"},
			{Guard{Allow: []string{"xml.*"}, Deny: []string{"xml.dom.*"}}, "import xml.dom.minidom", "import xml.dom.minidom"},
			{Guard{Allow: []string{"xml.*"}, Deny: []string{"xml.dom.*"}}, "import xml.sax\nxml.sax.handler", ""},
			{Guard{Deny: []string{"math"}}, "import math", "import math"},
			{Guard{Functions: []string{"open"}}, "open('/dev/null').close()", ""},
			{Guard{Functions: []string{"eval"}}, "assert eval('1 + 1') == 2", ""},
			{Guard{Functions: []string{"eval"}}, "eval('__import__(\"os\")')", "import os"},
			{Guard{Functions: []string{"exec"}}, "exec('import os')", "import os"},
			{Guard{Allow: []string{"subprocess"}, Processes: true}, "import subprocess\nsubprocess.run(['true'])", ""},
			{Guard{Allow: []string{"socket"}, Network: true}, "import socket\nsocket.socket().connect(('127.0.0.1', 1))", "ConnectionRefusedError"},
			{Guard{MaxIterations: -1}, "n = 0\nwhile n < 1000001: n += 1", ""},
		} {
			if got := verdict(guarded(t, h, c.guard, c.code)); got != c.want {
				t.Errorf("%q: %q, want %q", c.code, got, c.want)
			}
		}
	})
}

// TestGuardPackages checks that packages that were installed for the run may be imported.
func TestGuardPackages(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		var rs runs
		r := h.begin(t, &rs, Params{Guard: &Guard{}, Packages: []string{"pip>1"}})
		mustExec(t, r, "import pip._internal")
		r.Close()
		if got := verdict(guarded(t, h, Guard{}, "import pip")); got != "import pip" {
			t.Errorf("without: %q, want %q", got, "import pip")
		}
	})
}

func TestGuardRefused(t *testing.T) {
	t.Parallel()
	h := newPythonHost(t, "plain")
	var rs runs
	for want, g := range map[string]Guard{
		"Guard.Allow":         {Allow: []string{"a; import os"}},
		"Guard.Deny":          {Deny: []string{"a.*.b"}},
		"Guard.Presets":       {Presets: []Preset{"everything"}},
		"Guard.Functions":     {Functions: []string{"print"}},
		"Guard.MaxOperations": {MaxOperations: -1},
		"i_do_not_exist":      {Allow: []string{"i_do_not_exist.*"}},
	} {
		_, err := rs.begin(t.Context(), h, "kernel", Params{Guard: &g})
		if !errors.Is(err, api.ErrInvalidArgument) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	h.begin(t, &rs, Params{Guard: &Guard{Allow: []string{"*"}}}) // the context is free
}

// TestGuardListsAgree checks that a preset has only modules of every guard or of its own list,
// never a dangerous one.
func TestGuardListsAgree(t *testing.T) {
	t.Parallel()
	for _, module := range []string{"os", "subprocess", "socket", "shutil", "sys", "importlib", "ctypes", "pickle"} {
		if !slices.Contains(DangerousModules(), module) {
			t.Errorf("%s is not on the list", module)
		}
	}
	for preset := range presets {
		for _, module := range preset.Modules() {
			top, _, _ := strings.Cut(module, ".")
			if slices.Contains(DangerousModules(), top) || !guardModule().MatchString(module) {
				t.Errorf("%s: got %s, want a module name that is not among the dangerous ones", preset, module)
			}
		}
	}
}

// BenchmarkGuard runs the same compute-heavy code with and without a guard, alternating in
// one kernel, and measures processor time, so that other load does not count.
func BenchmarkGuard(b *testing.B) {
	const code = `
import time
start = time.process_time()
def sieve(n):
    flags = [True] * n
    i = 2
    while i * i < n:
        if flags[i]:
            for j in range(i * i, n, i):
                flags[j] = False
        i += 1
    return sum(flags)
import math
total = 0.0
for i in range(100000):
    total += math.sin(i) * math.sqrt(i)
sieve(200000)
n = 27
while n != 1:
    n = n // 2 if n % 2 == 0 else 3 * n + 1
time.process_time() - start
`
	for _, engine := range []string{"plain", "ipython"} {
		b.Run(engine, func(b *testing.B) {
			h := newPythonHost(b, engine)
			var rs runs
			least := map[bool]float64{}
			for b.Loop() {
				for on, g := range map[bool]*Guard{false: nil, true: {}} {
					r := h.begin(b, &rs, Params{Guard: g})
					var seconds float64
					must.Do(b, mustExec(b, r, code).Value.Decode(&seconds))
					r.Close()
					if before, ok := least[on]; !ok || seconds < before {
						least[on] = seconds
					}
				}
			}
			b.ReportMetric(least[true]/least[false], "on/off")
		})
	}
}
