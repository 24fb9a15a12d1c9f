package agent

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/state"
)

// TestLargeChanges changes values without a kept copy, because they have more than 64 KiB, and
// two that need more than one exchange, because they have more than 64 MiB. Neither a value's length
// nor the identity of most of its parts shows the change.
func TestLargeChanges(t *testing.T) {
	t.Parallel()
	h := newPythonHost(t, "plain")
	var rs runs
	st := state.New()
	r := h.begin(t, &rs, Params{})
	mustExec(t, r, "import collections, dataclasses\n_s = 'x' * (1 << 14)\n@dataclasses.dataclass\nclass D:\n    rows: list\nclass L(list):\n    pass")
	const frame = "x = pandas.DataFrame({'a': numpy.arange(9 << 14, dtype=float), 'b': 0.0}, index=pandas.RangeIndex(9 << 14))"
	for _, test := range []struct {
		name, make, change string
		libraries          bool
	}{
		{"a part deep in a list", "x = [[_s, [i]] for i in range(70)]", "x[33][1][0] = -1", false},
		{"every row of a list of rows", "x = [[_s, 0] for i in range(70)]", "for _row in x: _row[1] = 1", false},
		{"a float among equal ones", "x = [0.0] * (9 << 14)", "x[3] = -0.0", false},
		{"a type that is equal", "x = [_s] * 70 + [1]", "x[-1] = True", false},
		{"a key", "x = {'k%d' % i: _s for i in range(70)}", "x['new'] = x.pop('k0')", false},
		{"the order of keys", "x = {'k%d' % i: _s for i in range(70)}", "x['k3'] = x.pop('k3')", false},
		{"a part of a tuple", "x = tuple([_s, i] for i in range(70))", "x[3][1] = 0", false},
		{"an item of a set", "x = {_s + str(i) for i in range(70)}", "x.pop(); x.add('y')", false},
		{"a byte of a bytearray", "x = bytearray(70 << 20)", "x[3] = 1", false},
		{"other bytes in the same place", "x = bytes(70 << 14)", "del x\nx = b'y' * (70 << 14)", false},
		{"a field of a dataclass", "x = D([[_s, i] for i in range(70)])", "x.rows[3][1] = 0", false},
		{"a part of a subclass", "x = L([_s, i] for i in range(70))", "x[3][1] = 0", false},
		{"a part of a deque", "x = collections.deque([_s, i] for i in range(70))", "x[3][1] = 0", false},
		{"an element of an array", "x = numpy.zeros(9 << 20)", "x[3] = 1", true},
		{"an array in a list", "x = [numpy.zeros(9 << 14)]", "x[0][3] = 1", true},
		{"the dtype of an array in a list", "x = [numpy.zeros(9 << 14)]", "x[0] = x[0].view('<i8')", true},
		{"a part of an array of objects", "x = numpy.array([[_s, i] for i in range(70)], dtype=object)", "x[3, 1] = 0", true},
		{"the index of a table", frame, "x.index = x.index + 1000", true},
		{"the name of an index", frame, "x.index.name = 'n'", true},
		{"the dtype of a column", frame, "x['b'] = x['b'].astype(int)", true},
		{"the name of a column", frame, "x.columns = ['a', 'c']", true},
		{"the name of the columns", frame, "x.columns.name = 'n'", true},
		{"a cell of a table", frame, "x.loc[5, 'b'] = 1", true},
		{"a value of a series", "x = pandas.Series(numpy.zeros(9 << 14))", "x[5] = 1", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.libraries {
				needLibraries(t, r)
			}
			mustExec(t, r, test.make)
			must.Do(t, r.Pull(t.Context(), st))
			if names := changedNames(t, r); len(names) != 0 {
				t.Errorf("before the change: %v, want no names", names)
			}
			mustExec(t, r, test.change)
			if diff := cmp.Diff([]string{"x"}, changedNames(t, r)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestWhatPullDoesNotSee has a case for each change that Run.Pull does not see, and beside
// it the nearest change that it sees.
func TestWhatPullDoesNotSee(t *testing.T) {
	t.Parallel()
	h := newPythonHost(t, "plain")
	var rs runs
	st := state.New()
	r := h.begin(t, &rs, Params{})
	mustExec(t, r, "import array\nclass L(list): pass\nclass O:\n    def __init__(self): self.n = 0\n    def __repr__(self): return 'x' * 200 + str(self.n)")
	for _, test := range []struct {
		name, make, unseen, seen string
		libraries                bool
	}{
		{"an attribute of an instance of a subclass", "x = L([1])", "x.note = 1", "x[0] = 2", false},
		{"the attrs of a table", "x = pandas.DataFrame({'a': [1]})", "x.attrs['note'] = 1", "x.loc[0, 'a'] = 2", true},
		{"two parts that are one object", "x = [[1]]; x.append(x[0])", "x[1] = [1]", "x[1][0] = 2", false},
		{"the order of a set", "x = {8, 0}", "x = {0, 8}", "x = {0, 9}", false},
		{"the order of an array in memory", "x = numpy.arange(12).reshape(3, 4)[:, ::2]", "x = numpy.ascontiguousarray(x)", "x[0, 0] = 9", true},
		{"a memoryview of equal bytes", "x = b'ab'", "x = memoryview(b'ab')", "x = bytearray(b'ab')", false},
		{"the end of a long repr", "x = [O()]", "x[0].n = 1", "x[0] = array.array('b')", false},
		{"the content of a value that is too large", "x = [bytes(257 << 20), 0]", "x[1] = 1", "x.append(1)", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.libraries {
				needLibraries(t, r)
			}
			mustExec(t, r, test.make)
			must.Do(t, r.Pull(t.Context(), st))
			mustExec(t, r, test.unseen)
			if names := changedNames(t, r); len(names) != 0 {
				t.Errorf("after %s: %v changed, want no names", test.unseen, names)
			}
			mustExec(t, r, test.seen)
			if diff := cmp.Diff([]string{"x"}, changedNames(t, r)); diff != "" {
				t.Errorf("after %s (-want +got):\n%s", test.seen, diff)
			}
		})
	}
	t.Run("two names of one object", func(t *testing.T) {
		mustExec(t, r, "x = [1]; y = x")
		must.Do(t, r.Pull(t.Context(), st))
		mustExec(t, r, "y = [1]")
		if names := changedNames(t, r); len(names) != 0 {
			t.Errorf("after y became an equal list: %v changed, want no names", names)
		}
		mustExec(t, r, "y = x; x.append(2)")
		if diff := cmp.Diff([]string{"x", "y"}, changedNames(t, r)); diff != "" {
			t.Errorf("after a change through one name (-want +got):\n%s", diff)
		}
	})
}
