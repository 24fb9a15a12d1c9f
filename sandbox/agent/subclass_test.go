package agent

import (
	"fmt"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/state"
)

// subclasses is Python with classes that extend Python's own and override how their
// objects answer.
const subclasses = `
import collections, dataclasses, pathlib
class Cache(collections.OrderedDict):
    def __getitem__(self, k): self.move_to_end(k); return super().__getitem__(k)
    def __setitem__(self, k, v): super().__setitem__(k, v); len(self) > 2 and self.popitem(last=False)
    def items(self): return []
class Groups(collections.defaultdict): pass
class Reversed(list):
    def __iter__(self): return iter([])
    def append(self, x): raise TypeError
class Pair(tuple):
    def __iter__(self): return iter([])
    def __len__(self): return 0
class Text(str):
    def __str__(self): return "other"
class Number(int):
    def __int__(self): return 0
    def __index__(self): return 0
class Raw(bytes):
    def __bytes__(self): return b""
class Names(dict):
    def items(self): return []
    def __iter__(self): return iter([])
class Bag(set):
    def __iter__(self): return iter([])
@dataclasses.dataclass
class Both(dict):
    n: int = 1
class Folder(type(pathlib.Path())): pass
`

// TestSubclasses takes objects whose classes override how they answer to another kernel and
// back: their stored content is there again, in its order.
func TestSubclasses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ make, change, check string }{
		{"collections.OrderedDict(a=1, b=2, c=3)", "x.move_to_end('a')", "list(x) == ['b', 'c', 'a'] and type(x) is collections.OrderedDict"},
		{"collections.OrderedDict(a=1, b=2)", "x.move_to_end('b', last=False)", "list(x) == ['b', 'a']"},
		{"Cache(a=1, b=2)", "x['a']", "list(x) == ['b', 'a'] and type(x) is Cache and x['b'] == 2 and list(x) == ['a', 'b']"},
		{"Groups(list, a=[1])", "x['b'].append(2)", "x == {'a': [1], 'b': [2]} and type(x) is Groups and x['new'] == []"},
		{"collections.defaultdict(list, a=[1])", "x['b'].append(2)", "x == {'a': [1], 'b': [2]} and x['new'] == []"},
		{"collections.Counter('abca')", "x['a'] = 0", "list(x.items()) == [('a', 0), ('b', 1), ('c', 1)] and type(x) is collections.Counter"},
		{"collections.deque([1, 2, 3], maxlen=3)", "x.append(4)", "list(x) == [2, 3, 4] and x.maxlen == 3"},
		{"Reversed([1, 2])", "x[0] = 5", "x[0] == 5 and x[1] == 2 and len(x) == 2 and type(x) is Reversed"},
		{"Pair((1, 2))", "x = Pair((1, 3))", "x[1] == 3 and tuple.__len__(x) == 2 and type(x) is Pair"},
		{"Text('a')", "x = Text('b')", "x == 'b' and type(x) is Text"},
		{"Number(1)", "x = Number(2)", "x == 2 and type(x) is Number"},
		{"Raw(b'a')", "x = Raw(b'b')", "x == b'b' and type(x) is Raw"},
		{"Names(a=1, b=2)", "x['a'] = x.pop('a')", "list(x.keys()) == ['b', 'a'] and type(x) is Names"},
		{"Bag([1, 2])", "x.add(3)", "x == {1, 2, 3} and type(x) is Bag"},
	} {
		t.Run(test.make, func(t *testing.T) {
			t.Parallel()
			h := newPythonHost(t, "plain")
			var rs runs
			st := state.New()
			r := h.begin(t, &rs, Params{})
			mustExec(t, r, subclasses+"x = "+test.make)
			must.Do(t, r.Pull(t.Context(), st))
			mustExec(t, r, test.change)
			must.Do(t, r.Pull(t.Context(), st))
			r.Close()
			h.restart(t)
			r = h.begin(t, &rs, Params{})
			mustExec(t, r, subclasses)
			r.Close()
			r = h.begin(t, &rs, Params{State: st})
			mustExec(t, r, fmt.Sprintf("assert %s, list(dict.items(x)) if isinstance(x, dict) else x", test.check))
		})
	}
}

// TestSubclassesWithoutForm checks that an object that would lose a part is a handle.
func TestSubclassesWithoutForm(t *testing.T) {
	t.Parallel()
	h := newPythonHost(t, "plain")
	var rs runs
	st := state.New()
	r := h.begin(t, &rs, Params{})
	mustExec(t, r, subclasses+"x = [Both(), Folder('/a'), Groups(lambda: 1), collections.UserDict(a=1), collections.UserList([1])]")
	must.Do(t, r.Pull(t.Context(), st))
	var parts []any
	must.Do(t, st.Get("x", &parts))
	for i, x := range parts {
		if _, ok := x.(state.Opaque); !ok {
			t.Errorf("part %d: got %#v, want a state.Opaque", i, x)
		}
	}
}

// TestIndexKeepsFreq takes tables whose index has a step to Go, as typed values, and back.
func TestIndexKeepsFreq(t *testing.T) {
	t.Parallel()
	h := newPythonHost(t, "plain")
	var rs runs
	st := state.New()
	r := h.begin(t, &rs, Params{})
	needLibraries(t, r)
	mustExec(t, r, "freqs = ['D', '15min', 'ME', 'W-MON', 'B', '2h']\n"+
		"for _i, _f in enumerate(freqs): globals()['t%d' % _i] = pandas.DataFrame({'n': range(4)}, index=pandas.date_range('2026-01-01', periods=4, freq=_f, tz='Europe/Berlin'))\n"+
		"spans = pandas.timedelta_range('1h', periods=3, freq='h')\nplain = pandas.DatetimeIndex(['2026-01-01', '2026-01-02'])\n"+
		"t9 = pandas.Series([1, 2], index=pandas.date_range('2026-01-01', periods=2))\nt9.index.freq = None")
	must.Do(t, r.Pull(t.Context(), st))
	mustExec(t, r, "t9.index.freq = 'D'")
	if names := changedNames(t, r); len(names) != 1 || names[0] != "t9" {
		t.Errorf("after a change of freq alone: %v, want t9", names)
	}
	r.Close()
	for _, name := range st.Names() {
		var v any
		must.Do(t, st.Get(name, &v))
		set(t, st, name, v)
	}
	h.restart(t)
	r = h.begin(t, &rs, Params{State: st})
	mustExec(t, r, "assert [globals()['t%d' % i].index.freqstr for i in range(6)] == freqs\nassert spans.freqstr == 'h' and plain.freq is None")
}
