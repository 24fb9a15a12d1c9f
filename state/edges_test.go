package state_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/state"
)

// Each bound of a kind allows values up to it, and nothing beyond.
func TestBoundsOfKinds(t *testing.T) {
	t.Parallel()
	taken := func(v any) error { _, err := state.NewValue(v); return err }
	rat := func(text state.Decimal) error { _, err := text.Rat(); return err }
	fromJSON := func(text string) error { _, err := state.FromJSON([]byte(text)); return err }
	categories := mustColumn("c", []string{"a", "b"})
	category := func(code int8) error {
		return taken(state.Series{Column: state.Column{
			Dtype: "category", Data: state.Array{Dtype: "|i1", Shape: []int{1}, Data: []byte{byte(code)}}, Categories: &categories,
		}})
	}
	sides := func(n int) error {
		return taken(state.Array{Dtype: "|u1", Shape: slices.Repeat([]int{1}, n), Data: []byte{1}})
	}
	one := 1
	for what, err := range map[string][2]error{
		"a timedelta's seconds":     {taken(state.Timedelta{Seconds: 86399}), taken(state.Timedelta{Seconds: 86400})},
		"its least seconds":         {taken(state.Timedelta{}), taken(state.Timedelta{Seconds: -1})},
		"its microseconds":          {taken(state.Timedelta{Microseconds: 999_999}), taken(state.Timedelta{Microseconds: 1_000_000})},
		"its days":                  {taken(state.Timedelta{Days: 999_999_999}), taken(state.Timedelta{Days: 1_000_000_000})},
		"its least days":            {taken(state.Timedelta{Days: -999_999_999}), taken(state.Timedelta{Days: -1_000_000_000})},
		"a Decimal's exponent":      {taken(state.Decimal("1E+999999999999999999")), taken(state.Decimal("10E+999999999999999999"))},
		"its least exponent":        {taken(state.Decimal("1E-999999999999999999")), taken(state.Decimal("0.1E-999999999999999999"))},
		"an exponent of Rat":        {rat("1E+100000"), rat("1E+100001")},
		"the least exponent of Rat": {rat("1E-100000"), rat("1E-100001")},
		"items of a deque":          {taken(state.Deque{Items: []any{1}, MaxLen: &one}), taken(state.Deque{Items: []any{1, 2}, MaxLen: &one})},
		"digits of a negative int":  {fromJSON("-" + strings.Repeat("1", 4300)), fromJSON("-" + strings.Repeat("1", 4301))},
		"digits of an int in JSON":  {fromJSON(strings.Repeat("1", 4300)), fromJSON(strings.Repeat("1", 4301))},
		"lists in a list in JSON":   {fromJSON("[" + strings.Repeat("[],", 1000) + "[]]"), fromJSON(strings.Repeat("[", 1000) + strings.Repeat("]", 1000))},
		"a code of a category":      {category(1), category(2)},
		"the least code":            {category(-1), category(-2)},
		"dimensions of an array":    {sides(64), sides(65)},
		"a step of a datetime64":    {taken(state.Array{Dtype: "<M8[1s]", Shape: []int{0}}), taken(state.Array{Dtype: "<M8[0s]", Shape: []int{0}})},
		"the range of a Timestamp":  {taken(state.Timestamp{Time: time.Unix(9_223_372_036, 0)}), taken(state.Timestamp{Time: time.Unix(9_223_372_037, 0)})},
		"the bytes of an image":     {taken(state.Image{Mode: "CMYK", Width: 1, Height: 1, Raw: make([]byte, 4)}), taken(state.Image{Mode: "CMYK", Width: 1, Height: 1, Raw: make([]byte, 5)})},
		"the bytes of a structure":  {taken(fields(1<<28-1, 1)), taken(fields(1<<28-1, 2))},
		"structures in structures":  {taken(structures(16)), taken(structures(17))},
	} {
		if err[0] != nil || err[1] == nil {
			t.Errorf("%s: at the bound: error %v, want none; beyond it: error %v, want one", what, err[0], err[1])
		}
	}
}

// structures returns an empty array of structures within structures.
func structures(depth int) state.Array {
	return state.Array{Dtype: strings.Repeat(`[["a",`, depth) + `"<i4"` + strings.Repeat("]]", depth), Shape: []int{0}}
}

// fields returns an empty array of structures with one field of each size.
func fields(sizes ...int) state.Array {
	all := make([]string, len(sizes))
	for i, size := range sizes {
		all[i] = fmt.Sprintf(`["f%d","|V%d"]`, i, size)
	}
	return state.Array{Dtype: "[" + strings.Join(all, ",") + "]", Shape: []int{0}}
}

// TestElementsAreBounded checks that each kind of data with elements may have as many as its bound.
func TestElementsAreBounded(t *testing.T) {
	t.Parallel()
	numbers, err := state.ArrayOf([]int64{1, 2, 3})
	must.Do(t, err)
	counted := state.Column{Dtype: "range", Range: &state.Range{Stop: 3, Step: 1}}
	words := mustColumn("c", []string{"a", "b", "c"})
	codes := state.Column{Dtype: "category", Data: state.Array{Dtype: "|i1", Shape: []int{1}, Data: []byte{0}}, Categories: &words}
	for what, v := range map[string]any{
		"an array":       numbers,
		"a grid":         state.Array{Dtype: "|b1", Shape: []int{1, 3}, Data: make([]byte, 3)},
		"a series":       state.Series{Column: mustColumn("c", []int{1, 2, 3}), Index: counted},
		"a range":        state.Index{Column: counted},
		"objects":        state.Index{Column: words},
		"optional ones":  state.Index{Column: mustColumn("c", []*int{nil, nil, nil})},
		"its categories": state.Index{Column: codes},
	} {
		doc, err := state.Marshal(v)
		must.Do(t, err)
		var out any
		if err := state.UnmarshalLimits(doc, &out, state.Bounds{MaxElements: 3}); err != nil {
			t.Errorf("%s of 3 elements, where 3 are allowed: got error %v", what, err)
		}
		if err := state.UnmarshalLimits(doc, &out, state.Bounds{MaxElements: 2}); !isLimit(err, "MaxElements") {
			t.Errorf("%s of 3 elements, where 2 are allowed: got error %v, want a *state.LimitError of MaxElements", what, err)
		}
	}
	const most = math.MaxInt / 2 // elements of an array without limits
	for side, want := range map[int]int{0: 0, most: most, most + 1: 0, -1: 0} {
		if got := (state.Array{Shape: []int{side}}).Len(); got != want {
			t.Errorf("the length of an array of the shape %d: got %d, want %d", side, got, want)
		}
	}
}

// TestTextIsUTF8OrSurrogates checks the strings beside those that Python can have: each half of a
// surrogate pair in three bytes is one, and nothing else that is not UTF-8.
func TestTextIsUTF8OrSurrogates(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"\ufffd": true, "\xed\xa0\x80": true, "\xed\xaf\xbf": true, "\xed\xb0\x80": true, "\xed\xbf\xbf": true, "a\xed\xa0\x80é\xed\xb0\x80": true,
		"\xed\xa0": false, "\xed": false, "\xed\xa0\x7f": false, "\xed\xa0\xc0": false, "\xed\xa0a": false, "\xed\xc0\x80": false,
		"\xee\xa0": false, "\xf4\x90\x80\x80": false, "\xc0\x80": false, "\x80": false, "\xed\xa0\x80\xff": false,
	} {
		v, err := state.NewValue(text)
		if (err == nil) != want {
			t.Errorf("%q: got error %v, want it to be a str: %v", text, err, want)
			continue
		}
		var back string
		if want {
			if must.Do(t, v.Decode(&back)); back != text {
				t.Errorf("%q: came back as %q", text, back)
			}
		}
	}
}

// TestColumnsOfGoTypes checks the dtype of a column of each Go type, without and with missing values, and that
// the values come back.
func TestColumnsOfGoTypes(t *testing.T) {
	t.Parallel()
	columnOf(t, true, "bool", "boolean")
	columnOf(t, int(-3), "int64", "Int64")
	columnOf(t, int8(-3), "int8", "Int8")
	columnOf(t, int16(-3), "int16", "Int16")
	columnOf(t, int32(-3), "int32", "Int32")
	columnOf(t, int64(-3), "int64", "Int64")
	columnOf(t, uint(3), "uint64", "UInt64")
	columnOf(t, uint8(3), "uint8", "UInt8")
	columnOf(t, uint16(3), "uint16", "UInt16")
	columnOf(t, uint32(3), "uint32", "UInt32")
	columnOf(t, uint64(3), "uint64", "UInt64")
	columnOf(t, float32(1.5), "float32", "Float32")
	columnOf(t, 1.5, "float64", "Float64")
	columnOf(t, complex64(1i), "complex64", "object") // pandas has no masked complex numbers
	columnOf(t, 1i, "complex128", "object")
	columnOf(t, "a", "str", "str")
	columnOf(t, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), "datetime64[ns, UTC]", "object")
	columnOf(t, time.Hour, "timedelta64[ns]", "object")
}

func columnOf[T comparable](t *testing.T, x T, plain, optional string) {
	t.Helper()
	c := mustColumn("c", []T{x})
	values, err := state.Values[T](c)
	if err != nil || c.Dtype != plain || len(values) != 1 || values[0] != x {
		t.Errorf("%T: got %v of the dtype %s and error %v, want %v and %s", x, values, c.Dtype, err, x, plain)
	}
	c = mustColumn("c", []*T{nil, &x})
	pointers, err := state.Values[*T](c)
	if err != nil || c.Dtype != optional || len(pointers) != 2 {
		t.Fatalf("*%T: got %v of the dtype %s and error %v, want %s", x, pointers, c.Dtype, err, optional)
	}
	if pointers[0] != nil || pointers[1] == nil || *pointers[1] != x {
		t.Errorf("*%T: got %v, want none and %v", x, pointers, x)
	}
}

// An array is a copy, its elements are those it has, and its integers are no durations.
func TestArrayElements(t *testing.T) {
	t.Parallel()
	data := []uint8{1, 2}
	a, err := state.ArrayOf(data)
	must.Do(t, err)
	data[0] = 9
	if x, err := a.At(0); x != uint64(1) || err != nil {
		t.Errorf("got %v and error %v, want what it was made of", x, err)
	}
	for _, i := range []int{-1, 2} {
		if x, err := a.At(i); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("element %d of an array of 2", i)) {
			t.Errorf("element %d: got %v and error %v, want one that names it", i, x, err)
		}
	}
	objects := state.Array{Dtype: "|O", Shape: []int{2, 3}, Fortran: true, Objects: []any{0, 1, 2, 3, 4, 5}}
	for i := range objects.Objects { // they are in row order in every array
		if x, err := objects.At(i); x != i || err != nil {
			t.Errorf("object %d: got %v and error %v", i, x, err)
		}
	}
	numbers, err := state.ArrayOf([]int64{1})
	must.Do(t, err)
	if x, err := state.Elements[time.Duration](numbers); err == nil {
		t.Errorf("an int as a duration: got %v, want an error", x)
	}
	rows := document(`{"$":"ndarray","value":{"dtype":"|V0","shape":[1000,1],"data":{"$":"bytes","base64":""}}}`)
	if err := state.UnmarshalLimits(rows, new([][][]byte), state.Bounds{MaxNodes: 900}); !isLimit(err, "MaxNodes") {
		t.Errorf("a slice of slices: got error %v, want a *state.LimitError of MaxNodes", err)
	}
}
