package state_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/state"
)

type node struct {
	Next *node
}

type broken struct{}

var errBroken = errors.New("broken")

func (broken) MarshalPython() (any, error)        { return nil, errBroken }
func (*broken) UnmarshalPython(state.Value) error { return errBroken }

type celsius float64

func (c celsius) MarshalPython() (any, error) { return map[string]any{"celsius": float64(c)}, nil }

func (c *celsius) UnmarshalPython(v state.Value) error {
	var m map[string]float64
	if err := v.Decode(&m); err != nil {
		return err
	}
	*c = celsius(m["celsius"])
	return nil
}

type endless struct{}

func (endless) MarshalPython() (any, error) { return endless{}, nil }

type twice struct {
	A int `py:"x"`
	B int `py:"x"`
}

func TestRefused(t *testing.T) {
	t.Parallel()
	cycle := &node{}
	cycle.Next = cycle
	list := []any{nil}
	list[0] = list
	mapping := map[string]any{}
	mapping["self"] = mapping
	var loop any
	loop = &loop
	opaque, err := state.Parse([]byte(`{"v":1,"value":[{"$":"opaque","type":"m.T","repr":"<T>","reason":""}]}`), state.Bounds{})
	must.Do(t, err)
	bytearray, err := state.Parse([]byte(`{"v":1,"value":{"$":"bytearray","base64":"YQ=="}}`), state.Bounds{})
	must.Do(t, err)
	half := make([]byte, 100<<20) // half of the allowed size, in base64
	tests := []struct {
		name  string
		value any
		error string // contained in the message
	}{
		{"channel", make(chan int), "state: value: chan int has no Python form"},
		{"function", map[string]any{"servers": []any{1, struct{ Do func() }{}}}, `state: ["servers"][1]["Do"]: func() has no Python form`},
		{"Decimal", []any{state.Decimal("1.2.3")}, `[0]: "1.2.3" is not a Decimal`},
		{"larger exponent", state.Decimal("10e999999999999999999"), "out of Python's range"},
		{"date", state.Date{Year: 2026, Month: 2, Day: 30}, "a date that Python does not have: 2026-02-30"},
		{"date before year 1", state.Date{Year: 0, Month: 2, Day: 3}, "a date that Python does not have"},
		{"date after year 9999", state.Date{Year: 10000, Month: 2, Day: 3}, "a date that Python does not have"},
		{"time of day", state.TimeOfDay{Hour: 24}, "malformed time"},
		{"zone", state.TimeOfDay{Zone: "C E T"}, "neither UTC"},
		{"timedelta", state.Timedelta{Seconds: -1}, "a timedelta that Python does not have"},
		{"range", state.Range{}, "step 0"},
		{"deque", state.Deque{Items: []any{1}, MaxLen: new(0)}, "a deque of 1 items whose maximum is 0"},
		{"singleton", state.Singleton("None"), "unknown singleton"},
		{"instance", state.Instance{}, "an Instance of the kind"},
		{"dtype", state.Array{Dtype: "<f16", Shape: []int{0}}, "no Go form"},
		{"negative shape", state.Array{Dtype: "<f8", Shape: []int{-1}}, "the side -1"},
		{"overflowing shape", state.Array{Dtype: "<f8", Shape: []int{math.MaxInt, math.MaxInt}}, "MaxElements"},
		{"short buffer", state.Array{Dtype: "<f8", Shape: []int{2}, Data: make([]byte, 15)}, "2 elements of 8 bytes with a buffer of 15"},
		{"long buffer", state.Array{Dtype: "<f8", Shape: []int{2}, Data: make([]byte, 17)}, "2 elements of 8 bytes with a buffer of 17"},
		{"columns of two lengths", state.Table{Columns: []state.Column{mustColumn("a", []int{1}), mustColumn("b", []int{1, 2})}}, "a table of 1 rows with a column or index of 2"},
		{"array as a key", state.Dict{{state.Array{}, 1}}, "dtype"},
		{"deque in a set", state.Set{state.Deque{}}, "cannot have a deque as a key"},
		{"image", state.Image{Mode: "RGB", Width: 1, Height: 1, PNG: []byte("x")}, "not a PNG"},
		{"opaque", []any{state.Opaque{}}, "[0]: state.Opaque has no Python form"},
		{"opaque value", opaque, "exists only in its sandbox: a list with one in it"},
		{"UTF-8", map[string]any{"a": "\xff"}, `["a"]: a string that is not UTF-8`},
		{"half of a surrogate", "\xed\xa0", "not UTF-8"},
		{"UTF-8 key", map[string]int{"\xff": 1}, "[key]: a string that is not UTF-8"},
		{"pointer cycle", cycle, "a cycle through *state_test.node"},
		{"list cycle", list, "a cycle through []interface"},
		{"map cycle", mapping, "a cycle through map"},
		{"interface cycle", loop, "a cycle through"},
		{"deep", deep(200), "more than MaxDepth allows (200)"},
		{"10,000 deep", deep(10_000), "more than MaxDepth allows (200)"},
		{"1 GiB", map[string]any{"big": make([]byte, 1<<30)}, `["big"]: more than MaxBytes allows (268435456)`},
		{"1 GiB of floats", make([]float64, 1<<27), "more than MaxBytes allows"},
		{"two halves", [][]byte{half, half}, "[1]: more than MaxBytes allows"},
		{"list in a key", state.Dict{{state.Tuple{[]int{1}}, 1}}, "[0].Key[0]: Python cannot have a list as a key"},
		{"bytearray in set", state.Set{bytearray}, "[0]: Python cannot have a bytearray as a key or in a set"},
		{"dict in set", state.Set{map[string]int{}}, "[0]: Python cannot have a dict as a key or in a set"},
		{"struct key", map[node]int{{}: 1}, "cannot have a dict as a key"},
		{"set of sets", state.Set{state.Set{}}, "cannot have a set as a key"},
		{"set twice", state.Set{1, int8(1)}, "has 1 twice"},
		{"key twice", map[any]int{1: 1, int8(1): 2}, "has the key 1 twice"},
		{"Dict twice", state.Dict{{"a", 1}, {"a", 2}}, `has the key "a" twice`},
		{"year 10000", time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), "year 10000"},
		{"year 0", []time.Time{time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)}, "[0]: a time in year 0"},
		{"offset", time.Now().In(time.FixedZone("", 24*3600)), "less than a day"},
		{"offset to the west", time.Now().In(time.FixedZone("", -24*3600)), "less than a day"},
		{"marshaler", []any{broken{}}, "[0]: state: MarshalPython of state_test.broken: broken"},
		{"endless", endless{}, "MaxDepth"},
		{"two fields, one key", twice{}, `fields A and B both have the key "x"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			doc, err := state.Marshal(test.value)
			if err == nil || !strings.Contains(err.Error(), test.error) {
				t.Errorf("%v, want %q\n%.200s", err, test.error, doc)
			}
		})
	}
	if _, err := state.Marshal(broken{}); !errors.Is(err, errBroken) {
		t.Errorf("got %v, want errBroken", err)
	}
}

func TestErrorTypes(t *testing.T) {
	t.Parallel()
	_, err := state.Marshal([]any{make(chan int)})
	if e, ok := errors.AsType[*state.UnsupportedTypeError](err); !ok || e.Path != "[0]" || e.Type.String() != "chan int" {
		t.Errorf("got %#v, want a *state.UnsupportedTypeError at %s of %s", err, "[0]", "chan int")
	}
	_, err = state.Marshal(map[int]string{3: "\xff"})
	if e, ok := errors.AsType[*state.UnsupportedValueError](err); !ok || e.Path != "[3]" {
		t.Errorf("got %#v, want a *state.UnsupportedValueError at %s", err, "[3]")
	}
	_, err = state.Marshal(deep(300))
	if e, ok := errors.AsType[*state.LimitError](err); !ok || e.Limit != "MaxDepth" || len(e.Error()) > 1000 {
		t.Errorf("got %#v, want a *state.LimitError of %s in at most 1000 bytes", err, "MaxDepth")
	}
}

func TestCustomTypes(t *testing.T) {
	t.Parallel()
	roundTrip(t, celsius(1.5))
	roundTrip(t, map[string]celsius{"a": 1})
	roundTrip(t, []*celsius{new(celsius(2)), nil})
	var b broken
	if err := state.Unmarshal([]byte(`{"v":1,"value":1}`), &b); !errors.Is(err, errBroken) {
		t.Errorf("got %v, want errBroken", err)
	}
}

// A long list of floats is one block; a list that has other values too is not.
func TestPacked(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		value  any
		packed bool
	}{
		{make([]float64, 15), false},
		{make([]float64, 16), true},
		{make([]float32, 16), true},
		{append(make([]float64, 16), math.NaN()), true},
		{make([]celsius, 16), false},
		{make([]any, 16), false},
		{make([]int, 16), false},
	} {
		doc, err := state.Marshal(test.value)
		must.Do(t, err)
		if packed := strings.Contains(string(doc), `"float64"`); packed != test.packed {
			t.Errorf("%T: got %s, want it packed: %v", test.value, doc, test.packed)
		}
	}
}

func TestOutputIsGolden(t *testing.T) {
	t.Parallel()
	doc, err := state.Marshal(map[string]any{
		"b": []any{1, 1.0, 1e16, -1.5e-7, "é\u2028</\x01"}, "a": time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), "$": nil,
		"set": map[int]struct{}{2: {}, 10: {}}, "d": -1500 * time.Microsecond,
	})
	must.Do(t, err)
	want := `{"v":1,"value":{"$":"dict","items":[["$",null],` +
		`["a",{"$":"datetime","iso":"2026-01-02T03:04:05.000000","offset":0,"zone":"UTC"}],` +
		`["b",[1,1.0,1e+16,-1.5e-07,"é` + "\u2028" + `</\u0001"]],` +
		`["d",{"$":"timedelta","days":-1,"seconds":86399,"microseconds":998500}],` +
		`["set",{"$":"set","items":[10,2]}]]}}`
	if string(doc) != want {
		t.Errorf("got  %s\nwant %s", doc, want)
	}
}
