package state_test

import (
	"encoding/binary"
	"image"
	"image/color"
	"math"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/state"
)

func mustColumn[T any](name any, values []T) state.Column {
	c, err := state.ColumnOf(name, values)
	if err != nil {
		panic(err)
	}
	return c
}

// classes defines the classes that the values of kinds need.
const classes = `
import sys, types, decimal, fractions, uuid, pathlib, collections, enum, dataclasses
shapes = types.ModuleType("shapes")
sys.modules["shapes"] = shapes
exec('''
import collections, dataclasses, enum
P = collections.namedtuple("P", "x y")
@dataclasses.dataclass(frozen=True)
class D:
    a: int
    b: object
class E(enum.Enum): A = "x"
class N(enum.IntEnum): ONE = 1
class F(enum.Flag): A = 1; B = 2
class L(list): pass
class S(str): pass
''', shapes.__dict__)
`

// Every value is made by Python, decoded into any in Go, and sent back to
// Python without a difference.
func TestKinds(t *testing.T) {
	t.Parallel()
	python := startPython(t)
	kinds(t, python, classes, []kindCase{
		{"1j", 1i}, {"complex(float('-inf'), -0.0)", complex(math.Inf(-1), math.Copysign(0, -1))}, {"[complex('nan')]", nil},
		{"decimal.Decimal('1.10')", state.Decimal("1.10")}, {"decimal.Decimal('1E+2')", state.Decimal("1E+2")}, {"decimal.Decimal('-0E-9')", state.Decimal("-0E-9")}, {"decimal.Decimal('sNaN12')", state.Decimal("sNaN12")}, {"decimal.Decimal('-Infinity')", state.Decimal("-Infinity")},
		{"decimal.Decimal('0.000001')", state.Decimal("0.000001")}, {"decimal.Decimal('1.23E-7')", state.Decimal("1.23E-7")},
		{"fractions.Fraction(-2**70, 3)", big.NewRat(0, 1).SetFrac(bigint("-0x400000000000000000"), big.NewInt(3))},
		{"uuid.UUID(int=5)", state.UUID{15: 5}},
		{"datetime.date.min", state.Date{Year: 1, Month: 1, Day: 1}}, {"datetime.date.max", state.Date{Year: 9999, Month: 12, Day: 31}}, {"datetime.date(2026, 2, 28)", state.Date{Year: 2026, Month: 2, Day: 28}},
		{"datetime.time.max", state.TimeOfDay{Hour: 23, Minute: 59, Second: 59, Microsecond: 999999}},
		{"datetime.time(1, tzinfo=ZoneInfo('Europe/Berlin'), fold=1)", state.TimeOfDay{Hour: 1, Zone: "Europe/Berlin", Fold: true}},
		{"datetime.time(1, tzinfo=datetime.timezone.utc)", state.TimeOfDay{Hour: 1, Zone: "UTC"}},
		{"datetime.time(1, tzinfo=datetime.timezone(datetime.timedelta(hours=-3, seconds=5)))", state.TimeOfDay{Hour: 1, Zone: "-02:59:55"}},
		{"datetime.timedelta.min", state.Timedelta{Days: -999999999}}, {"datetime.timedelta(days=106751)", 106751 * 24 * time.Hour},
		{"pathlib.Path('/a/b')", state.Path{Path: "/a/b"}}, {"pathlib.PurePosixPath('a')", state.Path{Path: "a", Pure: true}}, {"pathlib.PureWindowsPath('c:/x')", state.Path{Path: `c:\x`, Windows: true, Pure: true}},
		{"range(5, -5, -3)", state.Range{Start: 5, Stop: -5, Step: -3}}, {"slice(1, None, 'x')", state.Slice{Start: int64(1), Step: "x"}},
		{"collections.deque([1, [2]], 5)", state.Deque{Items: []any{int64(1), []any{int64(2)}}, MaxLen: new(5)}}, {"collections.deque()", state.Deque{Items: []any{}}},
		{"[..., NotImplemented]", []any{state.Ellipsis, state.NotImplemented}},
		{"collections.OrderedDict([('z', 1), ('a', 2)])", state.Instance{Kind: state.KindSubclass, Type: "collections.OrderedDict", Value: state.Dict{{"z", int64(1)}, {"a", int64(2)}}}},
		{"collections.Counter('aab')", nil}, {"collections.defaultdict(list, {1: [2]})", state.Instance{Kind: state.KindDefaultDict, Type: "builtins.list", Value: state.Dict{{int64(1), []any{int64(2)}}}}}, {"collections.defaultdict()", nil},
		{"shapes.P(1, (2,))", state.Instance{Kind: state.KindNamedTuple, Type: "shapes.P", Value: state.Dict{{"x", int64(1)}, {"y", state.Tuple{int64(2)}}}}},
		{"shapes.D(1, shapes.E.A)", state.Instance{Kind: state.KindDataclass, Type: "shapes.D", Value: state.Dict{{"a", int64(1)}, {"b", state.Instance{Kind: state.KindEnum, Type: "shapes.E.A", Value: "x"}}}}},
		{"[shapes.N.ONE, 1]", nil}, {"shapes.F.A | shapes.F.B", nil}, {"shapes.L([1, 2])", nil}, {"{shapes.S('$'): {shapes.N.ONE: 1}}", nil},
		{"{1j: 1, decimal.Decimal(1): 2, uuid.UUID(int=1): 3, range(3): 4, datetime.date.min: 5}", nil},
		{"b'x' * 70000", nil}, {"[b'x' * 70000] * 2", nil}, {"[1.5] * 10000", nil},
	})
}

// TestLibraryKinds does the same with the values of libraries.
func TestLibraryKinds(t *testing.T) {
	t.Parallel()
	python := startPython(t)
	const libraries = classes + "import numpy as np, pandas as pd\nfrom PIL import Image\n"
	if _, err := python.ask(t, question{Setup: libraries, Expression: "1"}); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skipf("this python3 has not numpy, pandas and PIL: their kinds are not tested: %v", err)
	}
	cases := []kindCase{
		{"np.float64(1.5)", state.Scalar{Dtype: "<f8", Data: []byte{0, 0, 0, 0, 0, 0, 0xf8, 0x3f}}},
		{"[np.arange(0)[:0], np.array(3, dtype='>i4')]", []any{state.Array{Dtype: "<i8", Shape: []int{0}, Data: []byte{}}, state.Array{Dtype: ">i4", Shape: []int{}, Data: []byte{0, 0, 0, 3}}}},
		{"pd.NA", state.NA}, {"pd.NaT", state.NaT},
		{"pd.Timestamp('2026-01-01 00:00:00.000000001').as_unit('ns')", state.Timestamp{Time: time.Date(2026, 1, 1, 0, 0, 0, 1, state.Naive), Unit: "ns"}},
		{"np.array([[1, 'a'], [None, [2]]], dtype=object)", state.Array{Dtype: "|O", Shape: []int{2, 2}, Objects: []any{int64(1), "a", nil, []any{int64(2)}}}},
	}
	for _, expression := range []string{
		"np.float16(1.5)", "np.uint64(2**64-1)", "np.bool_(1)", "np.complex128(1j)", "np.str_('é')", "np.array(['a', ''])[1]", "np.bytes_(b'')", "np.array(['a', ''])[1:]", "np.void(b'')", "np.datetime64('2026-01-01')", "np.timedelta64('NaT')", "np.zeros(1, dtype=[('a', '<i4')])[0]",
		"np.zeros((0, 3))", "np.arange(6).reshape(2, 3)", "np.asfortranarray(np.arange(6).reshape(2, 3))", "np.arange(6)[::2]", "np.arange(12).reshape(2, 3, 2).T", "np.array([1.5], dtype='f2')", "np.array([True])",
		"np.array(['a', 'bc'])", "np.array([b'a'])", "np.array([1j])", "np.array(['2026'], dtype='M8[D]')", "np.array(['2026'], dtype='M8[25s]')", "np.zeros(2, dtype=[('a', '<i4'), ('b', '>f8', (2,)), ('c', [('d', 'S3')])])", "np.arange(100000.)", "np.arange(20000).reshape(2, -1).T",
		"pd.DataFrame({'a': [1, 2], 'b': ['x', None], 'c': pd.array([1, None], dtype='Int64'), 'd': pd.Categorical(['u', None], ordered=True), 'e': pd.date_range('2026', periods=2, tz='Europe/Berlin'), 'f': pd.Series([1, 'mixed'], dtype=object), 'g': [True, False]}, index=['r', 's'])",
		"pd.DataFrame(index=range(3))", "pd.DataFrame({1: [1], 'x': [2.], (1, 2): [3]})", "pd.DataFrame({'a': [1., 2.]}, index=pd.date_range('2026', periods=2))", "pd.DataFrame({'a': pd.array([True, None], dtype='boolean'), 'b': pd.array([1.5, None], dtype='Float64')})",
		"pd.Series([1, 2], name='n', index=[5, 6])", "pd.Series(['a', None])", "pd.Index(['a'], name='i')", "pd.RangeIndex(1, 7, 2)", "pd.Series(pd.to_timedelta([1, None]))", "pd.Timestamp('2026', tz='Europe/Berlin')",
		"Image.new('RGB', (3, 2))", "Image.new('RGBA', (3, 2))", "Image.new('P', (3, 2))", "Image.new('L', (3, 2))", "Image.new('CMYK', (2, 2))", "Image.new('F', (2, 2))", "Image.new('1', (9, 2))", "Image.new('I;16', (2, 2))",
	} {
		cases = append(cases, kindCase{expression, nil})
	}
	kinds(t, python, libraries, cases)
	optional := mustColumn("c", []*complex128{nil, new(1i)})
	doc, err := state.Marshal(state.Series{Column: optional})
	must.Do(t, err)
	if _, err := python.asked(t, libraries, doc, "[pd.isna(x[0]), x[1]] == [True, 1j] or 1/0"); err != nil {
		t.Errorf("a series of complex numbers, one missing: %v", err)
	}
	for expression, reason := range map[string]string{
		"np.matrix([[1]])": "subclass of ndarray", "np.ma.array([1])": "subclass of ndarray", "np.longdouble(1)": "no Go form", "pd.DataFrame({'a': [1]}, index=pd.MultiIndex.from_tuples([(1, 2)]))": "several levels", "pd.Series(pd.period_range('2026', periods=2))": "period[D]",
		"np.zeros(1, dtype=[('a', 'i4'), ('b', 'f8'), ('c', 'i2')])[['a', 'c']]": "no Go form", "np.zeros(1, dtype=[(('title', 'a'), 'i4')])": "no Go form",
	} {
		doc, err := python.ask(t, question{Setup: libraries, Expression: expression})
		must.Do(t, err)
		var o state.Opaque
		if err := state.Unmarshal(doc, &o); err != nil || !strings.Contains(o.Reason, reason) {
			t.Errorf("%s: got %+v, %v, want %q in the reason and no error", expression, o, err, reason)
		}
	}
}

type kindCase struct {
	expression string
	want       any // nil: not compared
}

func kinds(t *testing.T, python *python, setup string, cases []kindCase) {
	for _, test := range cases {
		doc, err := python.ask(t, question{Setup: setup, Expression: test.expression})
		if err != nil {
			t.Errorf("%s: %v", test.expression, err)
			continue
		}
		var got any
		if err := state.Unmarshal(doc, &got); err != nil {
			t.Errorf("%s: %v\n%.300s", test.expression, err, doc)
			continue
		}
		if test.want != nil {
			if diff := cmp.Diff(test.want, got, cmpOptions, cmp.Comparer(func(a, b *big.Rat) bool { return a.Cmp(b) == 0 })); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.expression, diff)
			}
		}
		again, err := state.Marshal(got)
		if err != nil {
			t.Errorf("%s: %v", test.expression, err)
			continue
		}
		if string(again) != string(doc) {
			t.Errorf("%s: Go's bytes differ\npython: %.300s\ngo:     %.300s", test.expression, doc, again)
		}
		same := "(type(x), codec.encode(x)) == (type(y := " + test.expression + "), codec.encode(y))"
		truth, err := python.asked(t, setup, again, same)
		if want := `{"v":1,"value":true}`; err != nil || string(truth) != want {
			t.Errorf("%s: is another value in Python: %s, %v, want %q and no error", test.expression, truth, err, want)
		}
	}
}

// Python receives what it expects from arrays that are made in Go.
func TestArrayOf(t *testing.T) {
	t.Parallel()
	a, err := state.ArrayOf([]float64{1, 2, 3, 4, 5, 6}, 2, 3)
	must.Do(t, err)
	var rows [][]float64
	if err := mustValue(t, a).Decode(&rows); err != nil || len(rows) != 2 || rows[1][2] != 6 {
		t.Errorf("got %v, %v, want 2 rows that end with 6 and no error", rows, err)
	}
	fortran := a
	fortran.Fortran = true
	if x, err := state.Elements[float64](fortran); err != nil || cmp.Diff([]float64{1, 3, 5, 2, 4, 6}, x) != "" {
		t.Errorf("got %v, %v, want %v and no error", x, err, []float64{1, 3, 5, 2, 4, 6})
	}
	if x, err := state.Elements[int](a); err == nil {
		t.Errorf("floats as ints: %v, want an error", x)
	}
	large := int64(1) << 40
	b, err := state.ArrayOf([]int{-1, int(large)})
	if err != nil || b.Dtype != "<i8" {
		t.Fatalf("got %v, %v, want b.Dtype = %q and no error", b, err, "<i8")
	}
	if x, err := state.Elements[int64](b); err != nil || x[0] != -1 || x[1] != 1<<40 {
		t.Errorf("got %v, %v, want %v and no error", x, err, []int64{-1, 1 << 40})
	}
	if _, err := state.Elements[int8](b); err == nil {
		t.Error("2^40 in an int8, want an error")
	}
	for _, test := range []struct {
		shape []int
		want  bool
	}{{nil, true}, {[]int{6}, true}, {[]int{2, 3}, true}, {[]int{1, 6, 1}, true}, {[]int{}, false}, {[]int{5}, false}, {[]int{7}, false}, {[]int{2, 2}, false}, {[]int{6, 0}, false}, {[]int{-2, -3}, false}, {[]int{math.MaxInt, 3}, false}} {
		if _, err := state.ArrayOf(make([]int, 6), test.shape...); (err == nil) != test.want {
			t.Errorf("6 numbers in the shape %v: got error %v, want them to fit: %v", test.shape, err, test.want)
		}
	}
	missing := state.Array{Dtype: "<M8[s]", Shape: []int{2}, Data: []byte{0, 0, 0, 0, 0, 0, 0, 0x80, 1, 0, 0, 0, 0, 0, 0, 0}}
	if x, err := state.Elements[*time.Time](missing); err != nil || x[0] != nil || x[1] == nil || x[1].Second() != 1 {
		t.Errorf("times of which one is missing: got %v and error %v, want no time and one", x, err)
	}
	for dtype, times := range map[string]map[int64]string{
		"<M8[ns]":          {math.MaxInt64: "2262-04-11 23:47:16.854775807", math.MinInt64 + 1: "1677-09-21 00:12:43.145224193"},
		"<M8[999999999ns]": {1: "1970-01-01 00:00:00.999999999", 9223372046: "2262-04-11 23:47:16.776627954", 9223372047: "", -9223372046: "1677-09-21 00:12:43.223372046", -9223372047: ""},
		"<M8[0ns]":         {1: ""},
	} {
		for value, want := range times {
			x, err := (state.Array{Dtype: dtype, Shape: []int{1}, Data: binary.LittleEndian.AppendUint64(nil, uint64(value))}).At(0)
			if got, ok := x.(time.Time); ok != (want != "") || ok && got.Format("2006-01-02 15:04:05.999999999") != want {
				t.Errorf("%s of %d: got %v, error %v, want %q", dtype, value, x, err, want)
			}
		}
	}
	surrogate := []byte{0, 0xd8, 0, 0, 'a', 0, 0, 0}
	for _, dtype := range []string{"<U2", `[["x","<U2"]]`, `[["x","<U1"],["y","<U1"]]`, `[["x","<U1",[2]]]`} {
		if x, err := (state.Array{Dtype: dtype, Shape: []int{1}, Data: surrogate}).At(0); err == nil || !strings.Contains(err.Error(), "the character 0xd800") {
			t.Errorf("%s: got %v, error %v, want an error about the character", dtype, x, err)
		}
	}
	big := state.Array{Dtype: ">f2", Shape: []int{4}, Data: []byte{0x3e, 0, 0xfc, 0, 0, 1, 0x80, 0}}
	if x, err := state.Elements[float64](big); err != nil || cmp.Diff([]float64{1.5, math.Inf(-1), math.Ldexp(1, -24), math.Copysign(0, -1)}, x, cmpOptions) != "" {
		t.Errorf("got %v, %v, want %v and no error", x, err, []float64{1.5, math.Inf(-1), math.Ldexp(1, -24), math.Copysign(0, -1)})
	}
}

type sale struct {
	City   string    `py:"city"`
	Amount float64   `py:"amount"`
	Units  *int64    `py:"units"`
	When   time.Time `py:"when"`
}

func TestTableOf(t *testing.T) {
	t.Parallel()
	rows := []sale{{"Bern", 1.5, new(int64(3)), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}, {"Köln", 2, nil, time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC)}}
	table, err := state.TableOf(rows)
	must.Do(t, err)
	var back state.Table
	must.Do(t, mustValue(t, table).Decode(&back))
	got, err := state.Rows[sale](back)
	must.Do(t, err)
	if diff := cmp.Diff(rows, got, cmpOptions); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	units, _ := back.Column("units")
	if _, err := state.Values[int64](units); err == nil {
		t.Error("a missing value became a number, want an error")
	}
	if x, err := state.Values[*int64](units); err != nil || x[1] != nil || *x[0] != 3 {
		t.Errorf("got %v, %v, want 3, then nil, and no error", x, err)
	}
	for year, want := range map[int]bool{0: false, 1: true, 1677: true, 1678: true, 2261: true, 2262: true, 9999: true, 10000: false} {
		at := time.Date(year, 7, 2, 3, 4, 5, 6000, time.UTC)
		column, err := state.ColumnOf("when", []time.Time{at})
		if err == nil {
			var x []time.Time
			if x, err = state.Values[time.Time](column); err == nil && !x[0].Equal(at) {
				t.Errorf("the year %d: got %v, want %v", year, x, at)
			}
		}
		if (err == nil) != want {
			t.Errorf("the year %d: got error %v, want it to be possible: %v", year, err, want)
		}
	}
}

func TestImage(t *testing.T) {
	t.Parallel()
	m := image.NewRGBA(image.Rect(0, 0, 2, 1))
	m.Set(1, 0, color.RGBA{1, 2, 3, 255})
	encoded, err := state.ImageOf(m)
	must.Do(t, err)
	var back state.Image
	must.Do(t, mustValue(t, encoded).Decode(&back))
	decoded, err := back.Decode()
	if err != nil || !cmp.Equal(color.RGBAModel.Convert(decoded.At(1, 0)), color.Color(color.RGBA{1, 2, 3, 255})) {
		t.Errorf("got %v, %v, want an image with %v at (1, 0) and no error", decoded, err, color.Color(color.RGBA{1, 2, 3, 255}))
	}
	doc, err := state.Marshal(encoded)
	must.Do(t, err)
	if err := state.UnmarshalLimits(doc, new(any), state.Bounds{MaxPixels: 1}); !isLimit(err, "MaxPixels") {
		t.Errorf("got %v, want a *state.LimitError of MaxPixels", err)
	}
	for name, test := range map[string]struct {
		image state.Image
		want  bool
	}{
		"a PNG":          {back, true},
		"wider":          {state.Image{Mode: "RGB", Width: 3, Height: 1, PNG: back.PNG}, false},
		"much wider":     {state.Image{Mode: "RGB", Width: 1 << 20, Height: 1, PNG: back.PNG}, false},
		"higher":         {state.Image{Mode: "RGB", Width: 2, Height: 2, PNG: back.PNG}, false},
		"turned":         {state.Image{Mode: "RGB", Width: 1, Height: 2, PNG: back.PNG}, false},
		"negative":       {state.Image{Mode: "RGB", Width: -2, Height: -1, PNG: back.PNG}, false},
		"raw, too":       {state.Image{Mode: "RGB", Width: 2, Height: 1, PNG: back.PNG, Raw: make([]byte, 6)}, false},
		"no PNG":         {state.Image{Mode: "RGB", Width: 2, Height: 1, PNG: back.PNG[1:]}, false},
		"long mode":      {state.Image{Mode: strings.Repeat("x", 17), Width: 2, Height: 1, PNG: back.PNG}, false},
		"raw":            {state.Image{Mode: "CMYK", Width: 2, Height: 1, Raw: make([]byte, 8)}, true},
		"24 bits":        {state.Image{Mode: "HSV", Width: 2, Height: 1, Raw: make([]byte, 6)}, true},
		"16 bits":        {state.Image{Mode: "I;16", Width: 2, Height: 1, Raw: make([]byte, 4)}, true},
		"one byte less":  {state.Image{Mode: "CMYK", Width: 2, Height: 1, Raw: make([]byte, 7)}, false},
		"one byte more":  {state.Image{Mode: "CMYK", Width: 2, Height: 1, Raw: make([]byte, 9)}, false},
		"raw, as a PNG":  {state.Image{Mode: "RGB", Width: 2, Height: 1, Raw: make([]byte, 6)}, false},
		"neither of two": {state.Image{Mode: "RGB", Width: 2, Height: 1}, false},
	} {
		if _, err := state.Marshal(test.image); (err == nil) != test.want {
			t.Errorf("%s: got error %v, want it to be an image: %v", name, err, test.want)
		}
	}
}

// An instance of a class that extends a type can be used where the type can.
func TestInstanceIntoItsBase(t *testing.T) {
	t.Parallel()
	check(t, `{"$":"enum","value":{"type":"m.E.A","value":3}}`, 3)
	check(t, `{"$":"dataclass","value":{"type":"m.D","value":{"X":1,"Y":2}}}`, Point{X: 1, Y: 2})
	check(t, `{"$":"subclass","value":{"type":"collections.Counter","value":{"a":2}}}`, map[string]int{"a": 2})
	check(t, `{"$":"scalar","value":{"dtype":"<i2","data":{"$":"bytes","base64":"BQA="}}}`, 5)
	check(t, `{"$":"uuid","value":"00000000-0000-0000-0000-000000000005"}`, state.UUID{15: 5})
	if got := (state.Instance{Kind: state.KindEnum, Type: "m.E.A"}).Member(); got != "A" {
		t.Errorf("got %q, want %q", got, "A")
	}
}

// Forms that an untrusted peer may send.
func TestHostileForms(t *testing.T) {
	t.Parallel()
	array := func(dtype, shape string) string {
		return `{"$":"ndarray","value":{"dtype":"` + dtype + `","shape":` + shape + `,"data":{"$":"bytes","base64":""}}}`
	}
	for _, body := range []string{
		array("<f8", "[1]"), array("<f8", "[-1]"), array("|V0", "[9223372036854775807,9223372036854775807]"), array("<f8", "[4294967296,4294967296,0,1.5]"), array("<q8", "[0]"), array("|O", "[1]"), array("<U999999999", "[0]"),
		array(`[[\"a\",\"|O\"]]`, "[0]"), array(`[[\"a\",\"<f8\",[-1]]]`, "[0]"), array(`[[\"a\",`+strings.Repeat(`[[\"a\",`, 20)+`\"<f8\"`+strings.Repeat(`]]`, 21), "[0]"),
		`{"$":"decimal","value":"1_0"}`, `{"$":"decimal","value":"1e99999999999999999999"}`, `{"$":"fraction","value":[1,0]}`, `{"$":"fraction","value":[1,null]}`, `{"$":"complex","value":[1]}`, `{"$":"date","value":"0000-01-01"}`, `{"$":"uuid","value":"x"}`, `{"$":"range","value":[1,2,0]}`,
		`{"$":"singleton","value":"exit"}`, `{"$":"timestamp","value":{"value":1,"unit":"Y"}}`, `{"$":"time","value":{"iso":"25:00:00.000000"}}`, `{"$":"time","value":{"iso":"05:00:00.000000","zone":"../etc"}}x`, `{"$":"deque","value":{"items":[1],"maxlen":0}}`,
		`{"$":"dataframe","value":{"columns":[],"index":{"name":null,"dtype":"range"},"label":null}}`, `{"$":"series","value":{}}`, `{"$":"image","value":{"mode":"RGB","width":1,"height":1}}`, `{"$":"enum","value":3}`, `{"$":"uuid"}`,
		`{"$":"bytes","base64":{"$":"blob","sha256":"00","size":1}}`, `{"$":"bytes","base64":{"$":"blob","sha256":"` + strings.Repeat("0", 64) + `","size":70000}}`,
	} {
		var x any
		if err := state.Unmarshal(document(body), &x); err == nil {
			t.Errorf("%.100s decodes to %v, want an error", body, x)
		}
		if _, err := state.Parse(document(body), state.Bounds{}); err == nil {
			t.Errorf("%.100s is a value, want an error", body)
		}
	}
	if err := state.UnmarshalLimits(document(array("|V0", "[1000]")), new(any), state.Bounds{MaxElements: 999}); !isLimit(err, "MaxElements") {
		t.Errorf("got %v, want a *state.LimitError of MaxElements", err)
	}
	deep := strings.Repeat(`{"$":"subclass","value":{"type":"m.T","value":`, 300) + "1" + strings.Repeat("}}", 300)
	for _, target := range []any{new(any), new(int), new(state.Value)} {
		if err := state.Unmarshal(document(deep), target); !isLimit(err, "MaxDepth") {
			t.Errorf("into %T: %v, want a *state.LimitError of MaxDepth", target, err)
		}
	}
}
