package state_test

import (
	"fmt"
	"math"
	"math/big"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/state"
)

type Point struct {
	X, Y int
	Note string `py:"note,omitempty"`
}

type inner struct {
	Name string `py:"name"`
}

type outer struct {
	inner
	*Point
	When    time.Time           `py:"when"`
	Took    time.Duration       `py:"took"`
	Tags    map[string]struct{} `py:"tags"`
	Points  []Point             `py:"points"`
	Next    *outer              `py:"next"`
	Skipped string              `py:"-"`
}

func bigint(s string) *big.Int {
	n, ok := new(big.Int).SetString(s, 0)
	if !ok {
		panic(s)
	}
	return n
}

func location(tb testing.TB, name string) *time.Location {
	tb.Helper()
	l, err := time.LoadLocation(name)
	if err != nil {
		tb.Skipf("no zone database: %v", err)
	}
	return l
}

// floats returns a list long enough to be written as one block.
func floats() []float64 {
	f := []float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64}
	for i := range 20 {
		f = append(f, float64(i)/3)
	}
	return f
}

var cmpOptions = cmp.Options{
	cmp.Comparer(func(a, b *big.Int) bool { return a == b || a != nil && b != nil && a.Cmp(b) == 0 }),
	cmp.Comparer(func(a, b float64) bool {
		return math.Float64bits(a) == math.Float64bits(b) || math.IsNaN(a) && math.IsNaN(b)
	}),
	cmp.Comparer(func(a, b time.Time) bool {
		_, x := a.Zone()
		_, y := b.Zone()
		return a.Equal(b) && x == y && (a.Location() == state.Naive) == (b.Location() == state.Naive)
	}),
	cmp.AllowUnexported(outer{}, inner{}),
}

// passage is a value on its way through Python.
type passage struct {
	name   string
	value  any
	python string // true in Python
	want   any    // the result of decoding into any; nil: the value itself
}

// Each case has an expression that is true in Python, and the value that comes
// back into any.
func TestThroughPython(t *testing.T) {
	t.Parallel()
	python := startPython(t)
	for _, r := range slices.Concat(numbers(), texts(), times(t), collections(t)) {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			r.check(t, python)
		})
	}
}

// check checks the value in Python, that Python encodes it in the same bytes, and the value decoded from these.
func (p passage) check(t *testing.T, python *python) {
	t.Helper()
	doc, err := state.Marshal(p.value)
	must.Do(t, err)
	truth, err := python.eval(t, doc, p.python)
	if err != nil {
		t.Fatalf("%v\n%s", err, doc)
	}
	if want := `{"v":1,"value":true}`; string(truth) != want {
		t.Errorf("in Python %s is %.200s for %.200s, want %.200s", p.python, truth, doc, want)
	}
	back, err := python.eval(t, doc, "x")
	must.Do(t, err)
	if string(back) != string(doc) {
		t.Errorf("Python's bytes differ\ngo:     %.300s\npython: %.300s", doc, back)
	}
	want := p.want
	if want == nil && p.name != "nil pointer" {
		want = p.value
	}
	var got any
	must.Do(t, state.Unmarshal(back, &got))
	if diff := cmp.Diff(want, got, cmpOptions); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func numbers() []passage {
	return []passage{
		{"nil", nil, "x is None", nil},
		{"nil pointer", (*int)(nil), "x is None", nil},
		{"true", true, "x is True", nil},
		{"int", 42, "x == 42 and type(x) is int", int64(42)},
		{"min int64", int64(math.MinInt64), "x == -2**63", nil},
		{"max uint64", uint64(math.MaxUint64), "x == 2**64-1", bigint("0xffffffffffffffff")},
		{"2^53+1", int64(1<<53 + 1), "x == 2**53+1", nil},
		{"2^63", bigint("0x8000000000000000"), "x == 2**63", nil},
		{"-2^63 as big", bigint("-0x8000000000000000"), "x == -2**63", int64(math.MinInt64)},
		{"5000 digits", new(big.Int).Exp(big.NewInt(10), big.NewInt(5000), nil), "x == 10**5000", nil},
		{"negative big", bigint("-0x123456789abcdef0123456789"), "x == -0x123456789abcdef0123456789", nil},
		{"int8", int8(-5), "x == -5", int64(-5)},
		{"1.0", 1.0, "x == 1 and type(x) is float", nil},
		{"0.1", 0.1, "x == 0.1", nil},
		{"float32", float32(0.5), "x == 0.5", 0.5},
		{"1e16", 1e16, "repr(x) == '1e+16'", nil},
		{"1e-5", 1e-5, "repr(x) == '1e-05'", nil},
		{"-0.0", math.Copysign(0, -1), "math.copysign(1, x) == -1", nil},
		{"NaN", math.NaN(), "math.isnan(x)", nil},
		{"Inf", math.Inf(1), "x == math.inf", nil},
		{"-Inf", math.Inf(-1), "x == -math.inf", nil},
		{"1e308", 1e308, "x == 1e308", nil},
		{"subnormal", math.SmallestNonzeroFloat64, "x == 5e-324", nil},
	}
}

func texts() []passage {
	return []passage{
		{"string", "héllo \"q\" \\ \u2028 \x00\x1f\x7f\n\t😀", `x == "h\u00e9llo \"q\" \\ \u2028 \x00\x1f\x7f\n\t\U0001f600"`, nil},
		{"lone surrogate", "a\xed\xa0\x80b", `x == "a\ud800b"`, nil},
		{"surrogates the wrong way round", "\xed\xb0\x80\xed\xa0\x80", `x == "\udc00\ud800"`, nil},
		{"pair of surrogates", "\xed\xa0\xbd\xed\xb8\x80", `x == "\ud83d\ude00" and len(x) == 2`, nil},
		{"surrogate in a list", []any{"\xed\xa0\x80", "plain"}, `x == ["\ud800", "plain"]`, nil},
		{"surrogate as a key", map[string]any{"\xed\xa0\x80": int64(1)}, `x == {"\ud800": 1}`, nil},
		{"bytes", []byte{0, 255, 128}, `x == b"\x00\xff\x80" and type(x) is bytes`, nil},
		{"no bytes", []byte(nil), `x == b""`, []byte{}},
		{"byte array", [4]byte{1, 2, 3, 4}, `x == b"\x01\x02\x03\x04"`, []byte{1, 2, 3, 4}},
	}
}

func times(t *testing.T) []passage {
	t.Helper()
	berlin := location(t, "Europe/Berlin")
	when := time.Date(2026, 11, 21, 2, 40, 58, 123456000, time.UTC)
	fall := time.Date(2026, 10, 25, 1, 30, 0, 0, time.UTC) // 02:30 in Berlin, for the second time
	return []passage{
		{"UTC", when, `x == datetime.datetime(2026,11,21,2,40,58,123456,tzinfo=datetime.timezone.utc) and x.tzinfo is datetime.timezone.utc`, nil},
		{"naive", when.In(state.Naive), `x == datetime.datetime(2026,11,21,2,40,58,123456)`, nil},
		{"zone", when.In(berlin), `x.tzinfo == ZoneInfo("Europe/Berlin") and x.hour == 3`, nil},
		{"fold", fall.In(berlin), `x.fold == 1 and x.utcoffset().seconds == 3600`, nil},
		{"fold before", fall.Add(-time.Hour).In(berlin), `x.fold == 0 and x.utcoffset().seconds == 7200`, nil},
		{"fixed", when.In(time.FixedZone("CET", 3600)), `x.utcoffset().seconds == 3600`, nil},
		{"CET", when.In(location(t, "CET")), `x.tzinfo == ZoneInfo("CET")`, nil},
		{"Japan", when.In(location(t, "Japan")), `x.tzinfo == ZoneInfo("Japan")`, nil},
		{"GMT", when.In(location(t, "GMT")), `x.tzinfo == ZoneInfo("GMT")`, nil},
		{"a name for an offset", when.In(time.FixedZone("CET", 3600)), `type(x.tzinfo) is datetime.timezone and "CET" not in repr(x)`, nil},
		{"a name of nothing", when.In(time.FixedZone("Mine", 3600)), `type(x.tzinfo) is datetime.timezone and "Mine" not in repr(x)`, nil},
		{"the zone of this machine", when.In(time.Local), `getattr(x.tzinfo, "key", None) != "Local"`, nil},
		{"odd offset", when.In(time.FixedZone("", -12345)), `x.utcoffset().total_seconds() == -12345`, nil},
		{"unknown zone", when.In(time.FixedZone("Here/There", 60)), `x.tzname() == "Here/There"`, nil},
		{"year 1", time.Time{}, `x == datetime.datetime.min.replace(tzinfo=datetime.timezone.utc)`, nil},
		{"nanoseconds are cut", when.Add(999), `x.microsecond == 123456`, when},
		{"duration", 90*time.Minute + 5*time.Microsecond, "x == datetime.timedelta(minutes=90, microseconds=5)", nil},
		{"negative duration", -time.Second, "x == datetime.timedelta(seconds=-1)", nil},
		{"longest", time.Duration(math.MinInt64/1000) * 1000, "x == datetime.timedelta(microseconds=-(2**63//1000))", nil},
	}
}

func collections(t *testing.T) []passage {
	t.Helper()
	x := 7
	return []passage{
		{"list", []int{1, 2, 3}, "x == [1, 2, 3] and type(x) is list", []any{int64(1), int64(2), int64(3)}},
		{"nil slice", []string(nil), "x == [] and type(x) is list", []any{}},
		{"strings", []string{"a", "é"}, `x == ["a", "\u00e9"]`, []any{"a", "é"}},
		{"mixed", []any{int64(1), 2.5, nil, "5", []any{}}, `x == [1, 2.5, None, "5", []]`, nil},
		{"floats", floats(), "len(x) == 27 and math.isnan(x[2]) and x[-1] == 19/3 and set(map(type, x)) == {float}", func() any {
			var out []any
			for _, f := range floats() {
				out = append(out, f)
			}
			return out
		}()},
		{"array", [2]string{"a", "b"}, `x == ("a", "b")`, state.Tuple{"a", "b"}},
		{"tuple", state.Tuple{int64(1), state.Tuple{}, 2.0}, "x == (1, (), 2.0)", nil},
		{"set", map[string]struct{}{"b": {}, "a": {}}, `x == {"a", "b"}`, state.Set{"a", "b"}},
		{"empty set", state.Set{}, "x == set() and type(x) is set", nil},
		{"set of tuples", state.Set{state.Tuple{int64(1)}, state.FrozenSet{int64(2)}}, "x == {(1,), frozenset({2})}", state.Set{state.FrozenSet{int64(2)}, state.Tuple{int64(1)}}},
		{"map", map[string]int{"b": 2, "a": 1}, `x == {"a": 1, "b": 2} and list(x) == ["a", "b"]`, map[string]any{"a": int64(1), "b": int64(2)}},
		{"nil map", map[string]int(nil), `x == {}`, map[string]any{}},
		{"int keys", map[int]string{10: "ten", 9: "nine", -1: ""}, `x == {-1: "", 9: "nine", 10: "ten"} and list(x) == [-1, 9, 10]`, state.Dict{{int64(-1), ""}, {int64(9), "nine"}, {int64(10), "ten"}}},
		{"tuple keys", map[[2]int]bool{{1, 2}: true}, `x == {(1, 2): True}`, state.Dict{{state.Tuple{int64(1), int64(2)}, true}}},
		{"1 and \"1\"", map[any]any{1: "int", "1": "str"}, `x == {1: "int", "1": "str"}`, state.Dict{{"1", "str"}, {int64(1), "int"}}},
		{"dollar key", map[string]any{"$": "tuple", "items": []any{}}, `x == {"$": "tuple", "items": []}`, nil},
		{"dollar deep", map[string]any{"a": map[string]any{"$": int64(1)}}, `x == {"a": {"$": 1}}`, nil},
		{"dict in order", state.Dict{{"z", int64(1)}, {"a", int64(2)}}, `list(x) == ["z", "a"]`, map[string]any{"z": int64(1), "a": int64(2)}},
		{"empty dict", state.Dict{}, `x == {}`, map[string]any{}},
		{"pointer", &x, "x == 7", int64(7)},
		{"struct", Point{X: 1, Y: 2}, `x == {"X": 1, "Y": 2}`, map[string]any{"X": int64(1), "Y": int64(2)}},
		{"text", netip.MustParseAddr("127.0.0.1"), `x == "127.0.0.1"`, "127.0.0.1"},
		{"value", mustValue(t, []any{int64(1), math.NaN()}), `x[0] == 1 and math.isnan(x[1])`, []any{int64(1), math.NaN()}},
	}
}

func mustValue(tb testing.TB, v any) state.Value {
	tb.Helper()
	value, err := state.NewValue(v)
	must.Do(tb, err)
	return value
}

func deep(n int) any {
	v := []any{}
	for range n {
		v = []any{v}
	}
	return v
}

// A typed target receives the same value that was encoded from its type.
func TestTypedRoundTrip(t *testing.T) {
	t.Parallel()
	roundTrip(t, outer{
		inner: inner{Name: "n"}, Point: &Point{X: 1, Y: -2}, When: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), Took: time.Minute,
		Tags: map[string]struct{}{"a": {}}, Points: []Point{{X: 1}, {Y: 2, Note: "y"}}, Next: &outer{inner: inner{Name: "next"}, Tags: map[string]struct{}{}, Points: []Point{}},
	})
	roundTrip(t, floats())
	roundTrip(t, []float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17})
	roundTrip(t, map[int]map[string][]float64{1: {"a": {1, 2.5}}})
	roundTrip(t, map[[2]int]string{{1, 2}: "x"})
	roundTrip(t, map[int]struct{}{1: {}, 2: {}})
	roundTrip(t, []*big.Int{big.NewInt(1), bigint("0x10000000000000000"), nil})
	roundTrip(t, [3]uint64{0, math.MaxInt64 + 1, math.MaxUint64})
	roundTrip(t, [4]byte{1, 2, 3, 4})
	roundTrip(t, map[netip.Addr]netip.Prefix{netip.MustParseAddr("::1"): netip.MustParsePrefix("10.0.0.0/8")})
	roundTrip(t, []any{nil, true, "s", state.Tuple{1.5}})
	roundTrip(t, new(new("pointer")))
	roundTrip(t, state.Dict{{state.Tuple{int64(1)}, nil}, {"$", 1.0}})
}

func roundTrip[T any](t *testing.T, v T) {
	t.Helper()
	doc, err := state.Marshal(v)
	if err != nil {
		t.Errorf("%T: %v", v, err)
		return
	}
	var got T
	if err := state.Unmarshal(doc, &got); err != nil {
		t.Errorf("%T: %v\n%s", v, err, doc)
		return
	}
	options := append(cmp.Options{cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })}, cmpOptions...)
	if diff := cmp.Diff(v, got, options); diff != "" {
		t.Errorf("%T (-want +got):\n%s", v, diff)
	}
	again, err := state.Marshal(got)
	if err != nil || string(again) != string(doc) {
		t.Errorf("%T: again %s, first %s, %v", v, again, doc, err)
	}
}

// found is code that defines a class where it can be found by its name.
func found(code, class string) string {
	return fmt.Sprintf("%s\nimport sys\n%[2]s.__module__ = '__main__'\nsys.modules['__main__'].%[2]s = %[2]s", code, class)
}

func unfound(class string) string {
	return "its class cannot be found by its name, " + class + ": define it outside of functions, under this name"
}

// Python values as Go sees them.
func TestFromPython(t *testing.T) {
	t.Parallel()
	python := startPython(t)
	tests := []struct {
		setup, expression string
		want              any
	}{
		{"", "bytearray(b'ab')", []byte("ab")},
		{"", "memoryview(b'ab')", []byte("ab")},
		{"", "{1: 2, '1': 3}", state.Dict{{int64(1), int64(2)}, {"1", int64(3)}}},
		{"", "collections.OrderedDict(a=1)", state.Instance{Kind: state.KindSubclass, Type: "collections.OrderedDict", Value: state.Dict{{"a", int64(1)}}}},
		{"", "collections.Counter('aab')", state.Instance{Kind: state.KindSubclass, Type: "collections.Counter", Value: state.Dict{{"a", int64(2)}, {"b", int64(1)}}}},
		{found("P = collections.namedtuple('P', 'x y')", "P"), "P(1, 2)", state.Instance{Kind: state.KindNamedTuple, Type: "__main__.P", Value: state.Dict{{"x", int64(1)}, {"y", int64(2)}}}},
		{found("class E(enum.IntEnum):\n  A = 3", "E"), "E.A", state.Instance{Kind: state.KindEnum, Type: "__main__.E.A", Value: int64(3)}},
		{found("class S(str): pass", "S"), "{S('$'): 1}", state.Dict{{state.Instance{Kind: state.KindSubclass, Type: "__main__.S", Value: "$"}, int64(1)}}},
		{found("class F(float): pass", "F"), "F(1)", state.Instance{Kind: state.KindSubclass, Type: "__main__.F", Value: 1.0}},
		{"", "collections.namedtuple('Q', 'x')(1)", state.Opaque{Type: "__main__.Q", Repr: "Q of 1", Reason: unfound("__main__.Q")}},
		{"def f():\n  class Local(list): pass\n  return Local([1])", "[f()]", []any{state.Opaque{Type: "builtins.f.<locals>.Local", Repr: "Local of 1", Reason: unfound("builtins.f.<locals>.Local")}}},
		{
			found("import dataclasses\n@dataclasses.dataclass(eq=False)\nclass Broken(Exception):\n  n: int", "Broken"), "Broken(1)",
			state.Opaque{Type: "__main__.Broken", Repr: "Broken(n=1)", Reason: "its class is a dataclass and extends one of Python's own: neither alone has all of it"},
		},
		{"", "[True, 1, 1.0]", []any{true, int64(1), 1.0}},
		{"", "len", state.Opaque{Type: "builtins.builtin_function_or_method", Repr: "<built-in function len>"}},
		{"", "[1, 1j]", []any{int64(1), 1i}},
		{"class Bad:\n  def __repr__(self): raise ValueError", "Bad()", state.Opaque{Type: "builtins.Bad", Repr: "repr failed: ValueError"}},
		{"class Proxy:\n  __class__ = property(lambda self: 1 / 0)", "[Proxy()]", state.Opaque{Type: "builtins.list", Repr: "list of 1", Reason: "looking into it failed: ZeroDivisionError"}},
		{"a = []; a.append(a)", "a", state.Opaque{Type: "builtins.list", Repr: "list of 1", Reason: "it contains itself"}},
		{"a = []\nfor i in range(200): a = [a]", "a", state.Opaque{Type: "builtins.list", Repr: "list of 1", Reason: "it is nested more than 200 deep"}},
		{"a = []\nfor i in range(100000): a = [a]", "a", state.Opaque{Type: "builtins.list", Repr: "list of 1", Reason: "it is nested more than 200 deep"}},
		{"a = []\nfor i in range(199): a = {1: a}", "type(a) is dict", true},
		{"", "datetime.timedelta.max", state.Timedelta{Days: 999999999, Seconds: 86399, Microseconds: 999999}},
		{"", "ValueError('x')", state.Opaque{Type: "builtins.ValueError", Repr: "ValueError('x')"}},
		{"", "re.compile('a')", state.Opaque{Type: "re.Pattern", Repr: "re.compile('a')"}},
		{"import ipaddress", "ipaddress.ip_address('::1')", state.Opaque{Type: "ipaddress.IPv6Address", Repr: "IPv6Address('::1')"}},
		{"", "datetime.timezone.utc", state.Opaque{Type: "datetime.timezone", Repr: "datetime.timezone.utc"}},
		{"", "int", state.Opaque{Type: "builtins.type", Repr: "<class 'int'>"}},
		{"import sys", "sys", state.Opaque{Type: "builtins.module", Repr: "<module 'sys' (built-in)>"}},
		{"", "range(2**64)", state.Opaque{Type: "builtins.range", Repr: "range(0, 18446744073709551616)", Reason: "it reaches beyond 64 bits"}},
		{"", "datetime.datetime.max", time.Date(9999, 12, 31, 23, 59, 59, 999999000, state.Naive)},
	}
	for _, test := range tests {
		t.Run(test.expression, func(t *testing.T) {
			t.Parallel()
			doc, err := python.ask(t, question{Setup: test.setup, Expression: test.expression})
			must.Do(t, err)
			value, err := state.Parse(doc, state.Bounds{})
			if err != nil {
				t.Fatalf("%v\n%s", err, doc)
			}
			var got any
			err = value.Decode(&got)
			must.Do(t, err)
			if diff := cmp.Diff(test.want, got, cmpOptions); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Go accepts the deepest dict that Python sends, and the other way round.
func TestDepthFitsBothSides(t *testing.T) {
	t.Parallel()
	python := startPython(t)
	list, err := state.Marshal(deep(199)) // not for cmp, which takes exponential time
	must.Do(t, err)
	if back, err := python.eval(t, list, "x"); err != nil || string(back) != string(list) {
		t.Errorf("lists: %s, %v, want %s and no error", back, err, list)
	}
	doc, err := python.ask(t, question{Setup: "a = {1: 1}\nfor i in range(199): a = {1: a}", Expression: "a"})
	must.Do(t, err)
	value, err := state.Parse(doc, state.Bounds{})
	if err != nil || value.Kind() != state.KindDict {
		t.Fatalf("got %v, %v, want state.KindDict and no error", value.Kind(), err)
	}
	if back, err := python.eval(t, doc, "x"); err != nil || string(back) != string(doc) {
		t.Errorf("again: %s, %v, want %s and no error", back, err, doc)
	}
}
