package agent

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/e2bctl/e2bctl/state"
)

// deltas is Python with the values and changes from which TestRandomDeltas picks, and a
// comparison that does not use the codec.
const deltas = `
import collections, dataclasses, pickle, random, struct
@dataclasses.dataclass
class Row:
    n: int
    parts: list
class Cache(collections.OrderedDict):
    def __getitem__(self, k): self.move_to_end(k); return super().__getitem__(k)
class Numbers(list):
    def __iter__(self): return iter([])
    def __reduce__(self): return _numbers, (list(list.__iter__(self)),)
def _numbers(plain):
    out = Numbers()
    list.extend(out, plain)
    return out
class Groups(collections.defaultdict): pass
_r = random.Random()
_large = 'x' * (1 << 20)
_floats = [i / 7 for i in range(10000)]
def _part():
    return _r.choice([None, True, 1, 1.0, -0.0, 'a', b'a', 2**70, (1, [2]), {1, 2}, {'k': [1]}, [], 'y' * 70000])
_makers = [
    lambda: [_part() for _ in range(_r.randrange(40))],
    lambda: {'k%d' % i: _part() for i in range(_r.randrange(40))},
    lambda: (_part(), [_part()], {'k': [_part()]}),
    lambda: {i for i in range(_r.randrange(30))},
    lambda: list(_floats), lambda: struct.pack('<10000d', *_floats), lambda: bytearray(struct.pack('<10000d', *_floats)),
    lambda: [list(_floats), struct.pack('<10000d', *_floats)],
    lambda: bytearray(66 << 20), lambda: [[_large, [i]] for i in range(66)], lambda: {'k%d' % i: _large for i in range(66)},
    lambda: collections.OrderedDict((i, _part()) for i in range(5)), lambda: Cache((i, [_part()]) for i in range(5)),
    lambda: _numbers([_part(), [_part()]]), lambda: Groups(list, a=[_part()]), lambda: collections.defaultdict(list, a=[1]),
    lambda: collections.Counter('abcabb'), lambda: collections.deque([1, [2], 3], maxlen=4), lambda: Row(1, [[_part()]]),
]
try:
    import numpy, pandas
    _makers += [
        lambda: numpy.array(_floats), lambda: numpy.array(_floats).view('<i8'), lambda: numpy.zeros((100, 100), order=_r.choice('CF'))[::_r.choice((1, 2))],
        lambda: numpy.zeros(9 << 20), lambda: [numpy.zeros(9 << 20)], lambda: numpy.array([1, 'a', None, [1]], dtype=object),
        lambda: pandas.DataFrame({'a': _floats, 'b': [str(i) for i in range(10000)]}),
        lambda: pandas.DataFrame(numpy.zeros((9 << 20, 1)), columns=['a']),
        lambda: pandas.DataFrame({'a': range(5)}, index=pandas.date_range('2026-01-01', periods=5, freq='D')),
        lambda: pandas.Series([1, None, 3], dtype='Int64'), lambda: pandas.Series(['a', 'b', 'a'], dtype='category'),
    ]
except ImportError:
    numpy = pandas = None

def _change(v, deep=0):
    """Changes a value in place, somewhere; False if that is not possible."""
    if deep < 3 and isinstance(v, (list, tuple)) and len(v):
        if _r.random() < 0.5 and any(_change(v[i], deep + 1) for i in _r.sample(range(len(v)), min(3, len(v)))):
            return True
    if isinstance(v, bytearray):
        if v: v[_r.randrange(len(v))] ^= 1
        return bool(v)
    if isinstance(v, list):
        how = _r.randrange(4)
        if how == 0 or not len(v): list.append(v, _part())
        elif how == 1: v[_r.randrange(len(v))] = _part()
        elif how == 2: list.pop(v, _r.randrange(len(v)))
        else: list.reverse(v)
        return True
    if isinstance(v, collections.OrderedDict) and len(v) and _r.random() < 0.7:
        v.move_to_end(_r.choice(list(v)), last=_r.random() < 0.5)
        return True
    if isinstance(v, collections.Counter):
        v[_r.choice('abcd')] += 1
        return True
    if isinstance(v, dict):
        keys = list(dict.keys(v))
        how = _r.randrange(4)
        if how == 0 or not keys: v['n%d' % _r.randrange(100)] = [_part()]
        elif how == 1: v[_r.choice(keys)] = _part()
        elif how == 2:
            k = _r.choice(keys)
            v[k] = v.pop(k)
        elif not _change(v[_r.choice(keys)], deep + 1): v['new'] = v.pop(keys[0])
        return True
    if isinstance(v, set):
        v ^= {_r.randrange(30)}
        return True
    if isinstance(v, collections.deque):
        v.append(_part())
        return True
    if isinstance(v, Row):
        return _change(v.parts, deep + 1)
    if numpy is None:
        return False
    if isinstance(v, numpy.ndarray):
        v.flat[_r.randrange(v.size)] = _r.randrange(1, 100)
        return True
    if isinstance(v, pandas.DataFrame):
        how = _r.randrange(6)
        if how == 0: v.index = v.index[::-1]
        elif how == 1: v.index.name = _r.choice(['p', 'q', None])
        elif how == 2: v.columns = ['c%d' % _r.randrange(1000) for _ in v.columns]
        elif how == 3: v.columns.name = _r.choice(['p', 'q', None])
        elif how == 4 and len(v) < 1 << 20: v.insert(0, 'i%d' % _r.randrange(10**9), _r.randrange(100))
        else: v.iloc[_r.randrange(len(v)), 0] = v.iloc[0, 0]
        return True
    if isinstance(v, pandas.Series):
        v.iloc[0] = v.iloc[_r.randrange(len(v))]
        return True
    return False

def _step(seed):
    """Makes, changes, aliases, copies or removes a few of the variables v0 to v2: three large
    ones that change at once are less than Pull brings at most."""
    _r.seed(seed)
    space = globals()
    for _ in range(_r.randrange(1, 4)):
        name = 'v%d' % _r.randrange(3)
        how = _r.random()
        if name not in space or how < 0.2: space[name] = _r.choice(_makers)()
        elif how < 0.7: _change(space[name])
        elif how < 0.8: space['v%d' % _r.randrange(3)] = space[name]
        elif how < 0.85: space['v%d' % _r.randrange(3)] = [space[name]] if _depth(space[name]) < 3 else 1
        elif how < 0.9: space[name] = pickle.loads(pickle.dumps(space[name]))
        else: del space[name]

def _depth(v):
    return 1 + _depth(v[0]) if type(v) is list and v else 1

def _same(a, b):
    """Compares types, values and order, by the attributes of objects."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return struct.pack('d', a) == struct.pack('d', b)
    if isinstance(a, collections.OrderedDict):
        a, b = collections.OrderedDict.items(a), collections.OrderedDict.items(b)
        return len(a) == len(b) and all(_same(x, y) for p, q in zip(a, b) for x, y in zip(p, q))
    if isinstance(a, dict):
        if isinstance(a, collections.defaultdict) and a.default_factory is not b.default_factory:
            return False
        return len(a) == len(b) and all(_same(x, y) for p, q in zip(dict.items(a), dict.items(b)) for x, y in zip(p, q))
    if isinstance(a, list):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(list.__iter__(a), list.__iter__(b)))
    if isinstance(a, (tuple, collections.deque)):
        return len(a) == len(b) and getattr(a, 'maxlen', None) == getattr(b, 'maxlen', None) and all(map(_same, a, b))
    if isinstance(a, Row):
        return _same(vars(a), vars(b))
    if numpy is not None:
        if isinstance(a, numpy.ndarray):
            return a.dtype == b.dtype and a.shape == b.shape and (_same(a.tolist(), b.tolist()) if a.dtype == object else a.tobytes() == b.tobytes())
        if isinstance(a, pandas.DataFrame):
            return list(a.columns) == list(b.columns) and a.columns.name == b.columns.name and _same(a.index, b.index) and all(
                _same(a.iloc[:, i], b.iloc[:, i]) for i in range(a.shape[1]))
        if isinstance(a, pandas.Series):
            return a.dtype == b.dtype and a.name == b.name and _same(a.index, b.index) and a.equals(b)
        if isinstance(a, pandas.Index):
            return a.dtype == b.dtype and a.name == b.name and getattr(a, 'freq', None) == getattr(b, 'freq', None) and a.equals(b)
    return a == b

def _save(path):
    with open(path, 'wb') as f:
        pickle.dump({n: globals()[n] for n in ('v%d' % i for i in range(3)) if n in globals()}, f)

def _compare(path):
    with open(path, 'rb') as f:
        want = pickle.load(f)
    for i in range(3):
        name = 'v%d' % i
        assert (name in want) == (name in globals()), '%s is there: %s' % (name, name in want)
        assert name not in want or _same(want[name], globals()[name]), '%s, a %s, differs' % (name, type(want[name]).__name__)
`

// TestRandomDeltas runs random code in a kernel, pulls the changes after each step, and
// sends the state to a second kernel, which compares it with the first one's values, saved
// by pickle: small values and those of more than 64 MiB, values that share bytes,
// subclasses, aliases and changes in place.
func TestRandomDeltas(t *testing.T) {
	t.Parallel()
	first, second := newPythonHost(t, "plain"), newPythonHost(t, "plain")
	var one, two runs
	r := first.begin(t, &one, Params{})
	mustExec(t, r, deltas)
	prepare := second.begin(t, &two, Params{})
	mustExec(t, prepare, deltas)
	prepare.Close()
	seed := rand.Int64N(1 << 40)
	t.Logf("seed %d", seed)
	st := state.New()
	file := filepath.Join(t.TempDir(), "pickled")
	steps := int64(8)
	if os.Getenv("SOAK") != "" {
		steps = 300
	}
	for step := range steps {
		mustExec(t, r, fmt.Sprintf("_step(%d)", seed+step))
		if err := r.Pull(t.Context(), st); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		mustExec(t, r, fmt.Sprintf("_save(%q)", file))
		other := second.begin(t, &two, Params{State: st, OnConflict: Overwrite})
		for i := range 3 {
			if name := fmt.Sprintf("v%d", i); !slices.Contains(st.Names(), name) {
				mustExec(t, other, fmt.Sprintf("globals().pop(%q, None)", name))
			}
		}
		mustExec(t, other, fmt.Sprintf("_compare(%q)", file))
		other.Close()
	}
}
