package state_test

import (
	"encoding/json"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/state"
)

func TestFromJSON(t *testing.T) {
	t.Parallel()
	large, _ := new(big.Int).SetString("123456789012345678901234567890", 10)
	for text, want := range map[string]any{
		" null ": nil, "true": true, "-0": int64(0), "1": int64(1), "1.0": 1.0, "1e3": 1000.0, "0.1000000000000000055511151231257827021181583404541015625": 0.1, "123456789012345678901234567890": large,
		`"é\ud83d\ude00"`: "é😀", "[]": []any{}, `{ "b" : [1, {}] , "a" : null }`: map[string]any{"b": []any{int64(1), map[string]any{}}, "a": nil},
		`{"$": "int", "hex": "ff"}`: map[string]any{"$": "int", "hex": "ff"},
	} {
		v, err := state.FromJSON([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var got any
		err = v.Decode(&got)
		same := cmp.Comparer(func(a, b *big.Int) bool { return a.Cmp(b) == 0 })
		if diff := cmp.Diff(want, got, same); err != nil || diff != "" {
			t.Errorf("%s: %v %s", text, err, diff)
		}
		if _, err := state.Parse(v.Bytes(), state.Bounds{}); err != nil {
			t.Errorf("%s: its document is %s: %v", text, v.Bytes(), err)
		}
	}
	var ordered state.Dict
	if v, err := state.FromJSON([]byte(`{"b":1,"a":2}`)); err != nil || v.Decode(&ordered) != nil || ordered[0].Key != "b" {
		t.Errorf("got %v, %v, want the order of the text", ordered, err)
	}
	for _, text := range []string{
		"", "nul", "1 2", "[1", `{"a"`, `{"a":1,"a":2}`, "[1}", "NaN", "1e999", "[1e999,1]", `{"a":1e999,"b":1}`, strings.Repeat("9", 4301),
		strings.Repeat("[", state.DefaultMaxDepth+1) + strings.Repeat("]", state.DefaultMaxDepth+1),
	} {
		if v, err := state.FromJSON([]byte(text)); err == nil {
			t.Errorf("%.40s: got %.40s, want an error", text, v.Bytes())
		}
	}
	for _, text := range []string{strings.Repeat("9", 4300), strings.Repeat("[", state.DefaultMaxDepth) + strings.Repeat("]", state.DefaultMaxDepth)} {
		if _, err := state.FromJSON([]byte(text)); err != nil {
			t.Errorf("%.40s: %v", text, err)
		}
	}
}

// JSON has no form for numbers that are not finite: a float target accepts their
// substitutes, at any depth, and no other target takes these for a number.
func TestNumbersThatJSONDoesNotHave(t *testing.T) {
	t.Parallel()
	v, err := state.FromJSON([]byte(`{"a":[1,null,"nan","-Infinity"],"b":null,"c":"inf"}`))
	must.Do(t, err)
	type numbers struct {
		A []float64
		B *float64
		C float32
	}
	var got struct{ numbers }
	want := numbers{[]float64{1, math.NaN(), math.NaN(), math.Inf(-1)}, nil, float32(math.Inf(1))}
	if err := v.Decode(&got.numbers); err != nil || !cmp.Equal(got.numbers, want, cmpopts.EquateNaNs()) {
		t.Errorf("got %v, %v, want %v", got.numbers, err, want)
	}
	var parts map[string]state.Value
	var c float64
	if err := v.Decode(&parts); err != nil || parts["c"].Decode(&c) != nil || !math.IsInf(c, 1) {
		t.Errorf("got %v, %v, want +Inf of a part as well", c, err)
	}
	if err := v.Decode(&struct{ B int }{}); err == nil {
		t.Error("null was stored in an int")
	}
	if err := mustValue(t, map[string]any{"c": "inf"}).Decode(&struct{ C float64 }{}); err == nil {
		t.Error("a str that was not JSON was stored in a float64")
	}
}

// Fields are found by their tags, py before json, and otherwise by their names, in the
// same way for every source.
func TestFieldsByTag(t *testing.T) {
	t.Parallel()
	type inner struct {
		Deep int `json:"deep"`
	}
	type all struct {
		Plain int
		Own   int `py:"own" json:"other"`
		Web   int `json:"web,omitempty"`
		Gone  int `json:"-"`
		Kept  int `py:"" json:"-"`
		inner
		Named struct{ X int } `json:"named"`
	}
	x := all{Plain: 1, Own: 2, Web: 0, Gone: 4, Kept: 5, inner: inner{6}}
	x.Named.X = 7
	doc, err := state.Marshal(x)
	if want := `{"v":1,"value":{"Plain":1,"own":2,"Kept":5,"deep":6,"named":{"X":7}}}`; err != nil || string(doc) != want {
		t.Errorf("got %s, %v, want %s", doc, err, want)
	}
	var back all
	if err := state.Unmarshal(doc, &back); err != nil || back != (all{Plain: 1, Own: 2, Kept: 5, inner: inner{6}, Named: struct{ X int }{7}}) {
		t.Errorf("got %+v, %v", back, err)
	}
}

func TestFieldsByCase(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		`{"mean":1}`: 1, `{"MEAN":1}`: 1, `{"mean":1,"Mean":2}`: 2, `{"Mean":2,"mean":1}`: 2, `{"median":1}`: 0, `{"mean":1,"MEAN":2}`: -1,
	} {
		var got struct{ Mean int }
		v, err := state.FromJSON([]byte(text))
		must.Do(t, err)
		if err := v.Decode(&got); err != nil {
			got.Mean = -1
		}
		if got.Mean != want {
			t.Errorf("%s: got %d, want %d", text, got.Mean, want)
		}
	}
	// Two fields that only case tells apart have their own keys.
	var both struct{ A, B int }
	var close struct {
		Lower int `py:"a"`
		Upper int `py:"A"`
	}
	if err := mustValue(t, map[string]int{"a": 1, "A": 2}).Decode(&close); err != nil || close.Lower != 1 || close.Upper != 2 {
		t.Errorf("got %+v, %v, want 1 and 2", close, err)
	}
	if err := mustValue(t, map[string]int{"a": 1, "A": 2, "b": 3}).Decode(&both); err != nil || both.A != 2 || both.B != 3 {
		t.Errorf("got %+v, %v, want 2 and 3", both, err)
	}
	columns := map[string]state.Column{
		"mean": mustColumn("mean", []float64{1, 2}), "Mean": mustColumn("Mean", []float64{3, 4}), "x": mustColumn("x", []float64{5, 6}),
	}
	for names, want := range map[string]float64{"mean": 2, "Mean": 4, "mean Mean": 4, "Mean mean": 4, "x": 0, "mean x": 2} {
		var table state.Table
		for name := range strings.FieldsSeq(names) {
			table.Columns = append(table.Columns, columns[name])
		}
		rows, err := state.Rows[struct{ Mean float64 }](table)
		if err != nil || len(rows) != 2 || rows[1].Mean != want {
			t.Errorf("the columns %s: got %v, %v, want %v in the last row", names, rows, err, want)
		}
	}
}

func BenchmarkFromJSON(b *testing.B) {
	for name, x := range map[string]any{"floats": make([]float64, 1e5), "records": make([]struct{ A, B, C int }, 2e4)} {
		text, err := json.Marshal(x)
		must.Do(b, err)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				_, err := state.FromJSON(text)
				must.Do(b, err)
			}
		})
	}
}
