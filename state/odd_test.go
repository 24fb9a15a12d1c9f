package state_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/state"
)

// A value of the kernel is either opaque, with the reason, or Go accepts it, writes it back
// unchanged, and another kernel makes it again. Nothing in between refuses it, which would cost
// all other variables, too.
func TestOddValues(t *testing.T) {
	t.Parallel()
	python := startPython(t)
	for _, test := range []struct{ setup, expression, reason string }{
		{"", `"\ud83d\ude00"`, ""},
		{"", `{"\ud83d\ude00": "\udc80"}`, ""},
		// Enumerations.
		{found(`E = enum.Enum("E", {"a.b": 1})`, "E"), `E("a.b" and 1)`, ""},
		{found(`E = enum.Enum("E", {"\ud800": 1})`, "E"), `E(1)`, ""},
		{found(`E = enum.Enum("E", {"L" * 300: 1})`, "E"), `E(1)`, ""},
		{found("class N(enum.Enum):\n  A = float('nan')", "N"), `N.A`, ""},
		{found("class N(enum.IntFlag):\n  A = 1\n  B = 2", "N"), `[N(0), N.A | N.B, N(8)]`, ""},
		{found("class N(enum.Enum):\n  A = 1", "N"), `setattr(N.A, "_value_", 2) or N.A`, "its class does not find it by its value"},
		{"def f():\n  class N(enum.Enum):\n    A = 1\n  return N.A", `f()`, "cannot be found by its name"},
		// Tuples with fields.
		{found("class F(tuple):\n  _fields = ('a', 'a')", "F"), `F((1, 2))`, ""},
		{found("class F(tuple):\n  _fields = (1, 2)", "F"), `F((1, 2))`, ""},
		{"import time", `time.gmtime(0)`, "is written in C: it has more than a tuple"},
		{"import os", `os.stat("/")`, "is written in C: it has more than a tuple"},
		{found("import os\nclass F(list): pass", "F"), `[F([1]), os.stat("/")]`, "is written in C: it has more than a tuple"},
		// Classes by their names.
		{found("class L(list): pass", "L") + "\nL.__qualname__ = 'L' * 300\nsetattr(sys.modules['__main__'], 'L' * 300, L)", `L([1])`, "cannot be found by its name"},
		{found("class L(list): pass", "L") + "\nL.__qualname__ = '\\ud800'\nsetattr(sys.modules['__main__'], '\\ud800', L)", `L([1])`, "cannot be found by its name"},
		{found("class L(list): pass", "L") + "\nL.__qualname__ = 'L' * 300\nsetattr(sys.modules['__main__'], 'L' * 300, L)", `collections.defaultdict(L)`, "its factory is not a class that can be found by its name"},
		{found("class L(list): pass", "L") + "\nL.__module__ = None", `L([1])`, "cannot be found by its name"},
		{
			found("import dataclasses\n@dataclasses.dataclass\nclass D:\n  n: int = dataclasses.field(init=False)\nD.n = property(lambda self: 1)", "D"), `D()`,
			"its field n is a property that cannot be set",
		},
		// Keys that are alike outside of this kernel.
		{"", `{float("nan"), float("nan")}`, "two of its keys or items are alike"},
		{"", `{float("nan"): 1, float("nan"): 2}`, "two of its keys or items are alike"},
		{"", `{("a", float("nan")): 1, ("a", float("nan")): 2}`, "two of its keys or items are alike"},
		{"", `{float("nan"): 1, (1, 2): 3, (2, 1): 3}`, ""},
		// Zones.
		{"", `datetime.time(1, tzinfo=datetime.timezone(datetime.timedelta(hours=5), "A/B"))`, ""},
		{"", `datetime.time(1, tzinfo=datetime.timezone(datetime.timedelta(hours=5), "Europe/Berlin"))`, ""},
		{"class Z(datetime.tzinfo):\n  key = 'Nowhere/Else'\n  utcoffset = dst = lambda self, when: None", `datetime.time(1, tzinfo=Z())`, "its zone has no name"},
	} {
		t.Run(test.expression, func(t *testing.T) { // one after the other: their classes have the same names
			doc, err := python.ask(t, question{Setup: test.setup, Expression: test.expression})
			must.Do(t, err)
			value, err := state.Parse(doc, state.Bounds{})
			if err != nil {
				t.Fatalf("Go refuses %s: %v", doc, err)
			}
			var v any
			if err := value.Decode(&v); err != nil {
				t.Fatalf("Go refuses %s: %v", doc, err)
			}
			if value.Opaque() != (test.reason != "") || !strings.Contains(string(doc), test.reason) {
				t.Fatalf("got %s, want the reason %q", doc, test.reason)
			}
			if value.Opaque() {
				return
			}
			again, err := state.Marshal(v)
			if err != nil || !bytes.Equal(again, doc) {
				t.Errorf("Go writes %s, %v, want %s and no error", again, err, doc)
			}
			if back, err := python.eval(t, doc, "x"); err != nil || !bytes.Equal(back, doc) {
				t.Errorf("made again: %s, %v, want %s and no error", back, err, doc)
			}
		})
	}
}
