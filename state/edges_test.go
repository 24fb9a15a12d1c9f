package state_test

import (
	"fmt"
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
		"digits of an int in JSON":  {fromJSON(strings.Repeat("1", 4300)), fromJSON(strings.Repeat("1", 4301))},
		"lists in a list in JSON":   {fromJSON("[" + strings.Repeat("[],", 1000) + "[]]"), fromJSON(strings.Repeat("[", 1000) + strings.Repeat("]", 1000))},
		"a code of a category":      {category(1), category(2)},
		"the least code":            {category(-1), category(-2)},
		"dimensions of an array":    {sides(64), sides(65)},
		"a step of a datetime64":    {taken(state.Array{Dtype: "<M8[1s]", Shape: []int{0}}), taken(state.Array{Dtype: "<M8[0s]", Shape: []int{0}})},
		"the range of a Timestamp":  {taken(state.Timestamp{Time: time.Unix(9_223_372_036, 0)}), taken(state.Timestamp{Time: time.Unix(9_223_372_037, 0)})},
		"the bytes of an image":     {taken(state.Image{Mode: "CMYK", Width: 1, Height: 1, Raw: make([]byte, 4)}), taken(state.Image{Mode: "CMYK", Width: 1, Height: 1, Raw: make([]byte, 5)})},
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
