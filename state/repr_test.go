package state_test

import (
	"image"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/state"
)

// The text of a value is Python's own, if Python's is short.
func TestStringIsPythonsRepr(t *testing.T) {
	t.Parallel()
	python := startPython(t)
	for _, expression := range []string{
		"None", "True", "12", "-3", "10**30", "1.0", "1e16", "1e-05", "0.1", "-0.0", "float('nan')", "[float('inf'), float('-inf')]",
		"1+2j", "-1.5-2j", "3j", `''`, `'it\'s "x"'`, `"it's"`, `'\n\t\\\x00\x7f\xa0é€😀\u200b\U000e0001'`, `'\ud83d'`, `b'a\n\xff\'"'`,
		"[]", "[1, 'a', [None]]", "(1,)", "()", "(1, 2)", "{1}", "set()", "frozenset()", "frozenset({'a'})", "{}", "{'b': 1, 'a': {2: (3,)}}", "{'$': 1}",
		"decimal.Decimal('1.50')", "range(3)", "range(0, 9, 2)", "slice(1, None)", "collections.deque([1, 'x'])", "...", "collections.OrderedDict()",
		"collections.Counter('aab')", "[0.5] * 100", "NotImplemented",
	} {
		doc, err := python.eval(t, nil, expression)
		must.Do(t, err)
		value, err := state.Parse(doc, state.Bounds{})
		must.Do(t, err)
		text, err := python.eval(t, nil, "repr("+expression+")")
		must.Do(t, err)
		var want string
		must.Do(t, state.Unmarshal(text, &want))
		if strings.HasPrefix(want, "OrderedDict()") {
			want = "OrderedDict({})" // newer Pythons use this form only if it is not empty
		}
		if got := value.String(); got != want {
			t.Errorf("%s: got %s, want %s", expression, got, want)
		}
	}
}

func TestStringOfOtherValues(t *testing.T) {
	t.Parallel()
	array := func(shape ...int) state.Array {
		n := 1
		for _, side := range shape {
			n *= side
		}
		a, err := state.ArrayOf(make([]int64, n), shape...)
		must.Do(t, err)
		return a
	}
	picture, err := state.ImageOf(image.NewGray(image.Rect(0, 0, 2, 1)))
	must.Do(t, err)
	column := mustColumn("n", []int64{1, 2})
	large := int64(1) << 40 // no constant, which 32 bits do not hold
	for _, test := range []struct {
		value any
		want  string
	}{
		{array(2, 2), "array([[0, 0], [0, 0]])"},
		{array(1), "array([0])"},
		{array(1001), "<array of shape (1001,), dtype <i8>"},
		{array(int(large), 0), "<array of shape (1099511627776, 0), dtype <i8>"},
		{state.Table{Columns: []state.Column{column}}, "DataFrame({'n': [1, 2]})"},
		{state.Table{Columns: []state.Column{mustColumn("n", make([]int64, 1001))}}, "<DataFrame of 1001 rows with the columns 'n'>"},
		{state.Series{Column: column}, "Series([1, 2])"},
		{picture, "<Image of 2×1, mode L>"},
		{time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), "datetime('2026-01-02T03:04:05.000006Z')"},
		{time.Date(2026, 1, 2, 3, 4, 5, 0, state.Naive), "datetime('2026-01-02T03:04:05')"},
		{state.Date{Year: 2026, Month: 1, Day: 2}, "date('2026-01-02')"},
		{90 * time.Second, "timedelta(days=0, seconds=90, microseconds=0)"},
		{state.Instance{Kind: state.KindDataclass, Type: "__main__.Point", Value: state.Dict{{"x", 1}, {"y", "a"}}}, "Point(x=1, y='a')"},
		{state.Instance{Kind: state.KindEnum, Type: "__main__.Color.RED", Value: 1}, "Color.RED"},
		{state.Instance{Kind: state.KindDefaultDict, Type: "builtins.int", Value: state.Dict{{"x", 1}}}, "defaultdict(int, {'x': 1})"},
		{state.Scalar{Dtype: "<i2", Data: []byte{1, 0}}, "1"},
	} {
		if got := mustValue(t, test.value).String(); got != test.want {
			t.Errorf("got %s, want %s", got, test.want)
		}
	}
	if got, want := (state.Value{}).String(), "None"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	opaque, err := state.Parse(document(`[{"$":"opaque","type":"a.B","repr":"<a.B object>","reason":""}]`), state.Bounds{})
	if got, want := opaque.String(), "[<a.B object>]"; err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}
