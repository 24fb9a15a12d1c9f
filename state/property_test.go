package state_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/state"
)

// generator makes values from a seed, and describes the differences between two of them,
// including those that their documents do not show.
const generator = classes + `
import random, string
import numpy as np, pandas as pd

ZONES = ["CET", "Japan", "GMT", "EST5EDT", "GMT+0", "W-SU", "NZ-CHAT", "Zulu", "UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+5"]

class Generator:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def pick(self, *of):
        return self.r.choice(of)

    def text(self):
        return "".join(self.r.choice("ab\u00e9\U0001f600\ud800\udc00\x00$/ \n") for _ in range(self.r.randrange(5)))

    def zone(self):
        offset = datetime.timedelta(seconds=self.r.randrange(-86399, 86400))
        return self.pick(ZoneInfo(self.r.choice(ZONES)), ZoneInfo(self.r.choice(ZONES)), datetime.timezone.utc, datetime.timezone(offset), datetime.timezone(datetime.timedelta(hours=1), "CET"))

    def datetime(self):
        at = datetime.datetime(self.r.randrange(1700, 2200), self.r.randrange(1, 13), self.r.randrange(1, 29), self.r.randrange(24), microsecond=self.r.randrange(10**6))
        return at.replace(tzinfo=self.pick(None, self.zone()), fold=0)

    def timestamp(self):
        return pd.Timestamp(self.r.randrange(-2**60, 2**60), unit="ns", tz=self.pick(None, self.zone()))

    def scalar(self):
        return self.pick(
            lambda: None, lambda: self.r.random() < .5, lambda: self.r.randrange(-2**70, 2**70), lambda: self.r.randrange(9), lambda: self.r.uniform(-9, 9),
            lambda: self.pick(math.inf, -0.0, 1e300), self.text, lambda: self.text().encode("utf-8", "replace"), self.datetime, self.timestamp,
            lambda: self.datetime().timetz(), lambda: self.datetime().date(), lambda: np.str_(self.pick("", "a")), lambda: np.bytes_(self.pick(b"", b"a")), lambda: np.int16(self.r.randrange(99)),
            lambda: pd.NA, lambda: pd.NaT, lambda: decimal.Decimal(self.r.randrange(99)) / 7, lambda: shapes.E.A,
        )()

    def label(self):
        return self.pick(None, math.nan, 1, 2.5, True, "a", "b", (1, "x"), self.datetime(), datetime.date(2026, 1, 2), b"k", self.text())

    def series(self, n):
        zone = self.r.choice(ZONES)
        return self.pick(
            lambda: pd.Series([self.scalar() for _ in range(n)], dtype=object), lambda: pd.Series([self.r.uniform(0, 1) for _ in range(n)], dtype=self.pick("f4", "f8")),
            lambda: pd.Series(pd.array([self.pick(None, 1) for _ in range(n)], dtype=self.pick("Int8", "Int64", "Float64", "boolean"))),
            lambda: pd.Series([self.pick("a", None, "\u00e9") for _ in range(n)], dtype="str"), lambda: pd.Series(pd.Categorical([self.pick("a", "b", None) for _ in range(n)], categories=["b", "a"], ordered=self.pick(True, False))),
            lambda: pd.Series(pd.date_range("2026-03-01", periods=n, freq="D", tz=zone)), lambda: pd.Series(pd.to_timedelta([self.pick(None, 1, 10**12) for _ in range(n)])),
        )()

    def index(self, n):
        return self.pick(
            lambda: pd.RangeIndex(n), lambda: pd.RangeIndex(3, 3 + 2 * n, 2), lambda: pd.Index([self.label() for _ in range(n)], dtype=object, tupleize_cols=False),
            lambda: pd.Index([self.label() for _ in range(n)], tupleize_cols=False), lambda: pd.Index(range(n), dtype=self.pick("int64", "int8", "float64", "object")),
            lambda: pd.Index(list("abcdef")[:n], dtype=self.pick("str", "object", "category")), lambda: pd.date_range("2026", periods=n, freq=self.pick("D", "h"), tz=self.pick(None, self.r.choice(ZONES))),
            lambda: pd.Index(pd.date_range("2026", periods=n, tz=self.r.choice(ZONES)).tolist(), tupleize_cols=False), lambda: pd.timedelta_range("1h", periods=n),
        )().rename(self.pick(None, "i", 1))

    def frame(self):
        n, width = self.r.randrange(4), self.r.randrange(4)
        rows = self.index(n)
        out = pd.DataFrame({i: self.series(n).set_axis(rows) for i in range(width)}, index=rows)
        out.columns = self.index(width)
        return out

    def value(self, depth=3):
        if depth == 0 or self.r.random() < .4:
            return self.scalar()
        n = self.r.randrange(4)
        inner = lambda: self.value(depth - 1)
        return self.pick(
            lambda: [inner() for _ in range(n)], lambda: tuple(inner() for _ in range(n)), lambda: {i: inner() for i in range(n)}, lambda: {k: inner() for k in sorted("a$z"[:n])},
            lambda: [self.r.uniform(0, 1)] * 20, lambda: self.text() * 30000, lambda: np.array([self.pick("", "a", "bc") for _ in range(n)]), lambda: np.arange(self.r.randrange(20000)),
            lambda: self.series(n).rename(self.pick(None, "s", 1)), lambda: self.index(n), self.frame, self.frame, lambda: collections.deque([inner()], 3), lambda: {self.pick(1, "a", 2.5, (1,))},
        )()

def made(seed):
    return Generator(seed).value()

def difference(a, b, at="x"):
    if type(a) is not type(b):
        return "%s: %s, not %s" % (at, type(a), type(b))
    if isinstance(a, pd.DataFrame):
        return difference(a.columns, b.columns, at + ".columns") or difference(a.index, b.index, at + ".index") or next(filter(None, (difference(a.iloc[:, i], b.iloc[:, i], "%s[%d]" % (at, i)) for i in range(a.shape[1]))), "")
    if isinstance(a, (pd.Series, pd.Index)):
        if str(a.dtype) != str(b.dtype) or getattr(a, "freq", None) != getattr(b, "freq", None):
            return "%s: dtype %s, not %s; freq %s, not %s" % (at, a.dtype, b.dtype, getattr(a, "freq", None), getattr(b, "freq", None))
        return difference(a.name, b.name, at + ".name") or difference(a.tolist(), b.tolist(), at) or isinstance(a, pd.Series) and difference(a.index, b.index, at + ".index") or ""
    if isinstance(a, np.ndarray):
        return "" if a.dtype == b.dtype and a.shape == b.shape and a.tolist() == b.tolist() else at + ": another array"
    if isinstance(a, (list, tuple, collections.deque)):
        return "%s: of another length" % at if len(a) != len(b) else next(filter(None, (difference(x, y, "%s[%d]" % (at, i)) for i, (x, y) in enumerate(zip(a, b)))), "")
    if isinstance(a, dict):
        return difference(list(a.items()), list(b.items()), at)
    if isinstance(a, (datetime.datetime, datetime.time)) and a is not pd.NaT:
        zones = [(x.utcoffset(), "UTC" if x.tzinfo is datetime.timezone.utc else getattr(x.tzinfo, "key", None), getattr(x.tzinfo, "zone", None)) for x in (a, b)]
        return "" if a == b and zones[0] == zones[1] else "%s: %r, not %r" % (at, a, b)
    return "" if a is b or a != a and b != b or a == b and repr(a) == repr(b) else "%s: %r, not %r" % (at, a, b)
`

// TestGeneratedValues checks that any value of Python comes back from Go unchanged.
func TestGeneratedValues(t *testing.T) {
	t.Parallel()
	python := startPython(t)
	// Compiled once: the questions after it import it.
	setup := fmt.Sprintf("import sys, types\ngenerated = types.ModuleType('generated')\ngenerated.__dict__.update(globals())\nexec(%q, generated.__dict__)\nsys.modules['generated'] = generated", generator)
	if _, err := python.ask(t, question{Setup: setup, Expression: "1"}); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skipf("this python3 has not numpy and pandas: their values are not tested: %v", err)
	}
	const generated = "from generated import *"
	for seed := range 500 {
		made := fmt.Sprintf("made(%d)", seed)
		doc, err := python.ask(t, question{Setup: generated, Expression: made})
		if err != nil {
			t.Fatalf("%s: %v", made, err)
		}
		value, err := state.Parse(doc, state.Bounds{})
		if err != nil {
			t.Errorf("%s: %v\n%.500s", made, err, doc)
			continue
		}
		if value.Opaque() {
			t.Errorf("%s has a part without a Go form: %.500s", made, doc)
			continue
		}
		again, err := state.Marshal(decoded(t, value))
		if err != nil || string(again) != string(doc) {
			t.Errorf("%s: Go's bytes differ: %v\npython: %.500s\ngo:     %.500s", made, err, doc, again)
			continue
		}
		difference, err := python.asked(t, generated, again, "difference(x, "+made+")")
		if want := `{"v":1,"value":""}`; err != nil || string(difference) != want {
			t.Errorf("%s is another value when it comes back: %s, %v\n%.500s", made, difference, err, doc)
		}
	}
}

// TestLabels checks that the columns' own index is sent unchanged while the columns have its
// names, and that the names count once they differ.
func TestLabels(t *testing.T) {
	t.Parallel()
	table := func(labels state.Column, names ...any) state.Table {
		out := state.Table{Labels: &labels}
		for _, name := range names {
			out.Columns = append(out.Columns, mustColumn(name, []int{7}))
		}
		return out
	}
	objects := mustColumn(nil, []any{int64(1), nil})
	counted := state.Column{Name: "ignored", Dtype: "range", Range: &state.Range{Stop: 2, Step: 1}}
	category := state.Column{Dtype: "category", Data: mustColumn(nil, []int8{1, 0}).Data, Categories: new(mustColumn(nil, []string{"a", "b"}))}
	for _, test := range []struct {
		table state.Table
		kept  bool
	}{
		{table(objects, int64(1), nil), true}, {table(objects, int64(1), "x"), false}, {table(objects, int64(1)), false}, {table(objects, int64(1), nil, "new"), false},
		{table(counted, 0, 1), true}, {table(counted, 1, 0), false}, {table(category, "b", "a"), true},
		{table(mustColumn(nil, []float64{1, math.NaN()}), 1.0, math.NaN()), true},
	} {
		var back state.Table
		must.Do(t, mustValue(t, test.table).Decode(&back))
		if (back.Labels != nil) != test.kept {
			t.Errorf("the labels of %v came back as %+v", test.table.Columns, back.Labels)
		}
		if back.Labels != nil && back.Labels.Name != nil {
			t.Errorf("the labels of %v have the name %v, want none: Label contains it", test.table.Columns, back.Labels.Name)
		}
		for i, c := range test.table.Columns {
			if got, want := mustValue(t, back.Columns[i].Name), mustValue(t, c.Name); !bytes.Equal(got.Bytes(), want.Bytes()) {
				t.Errorf("column %d: the name %v came back as %v", i, want, got)
			}
		}
	}
	const head = `{"$":"dataframe","value":{"columns":[{"name":null,"dtype":"range","range":{"$":"range","value":[0,1,1]}}],"index":{"name":null,"dtype":"range","range":{"$":"range","value":[0,1,1]}},"label":null,"labels":{"name":null,"dtype":"range","range":{"$":"range","value":`
	if err := state.Unmarshal(document(head+`[0,1,1]}}}}`), new(any)); err != nil {
		t.Error(err)
	}
	for _, body := range []string{
		head + `[0,2,1]}}}}`, head + `[0,9000000000000000000,1]}}}}`, head + `[0,1,1]},"mask":{"$":"bytes","base64":""}}}}`,
		strings.Replace(head, `"name":null`, `"name":1`, 1) + `[0,1,1]}}}}`,
	} {
		if err := state.Unmarshal(document(body), new(any)); err == nil {
			t.Errorf("%.400s is a value, want an error", body)
		}
	}
}
