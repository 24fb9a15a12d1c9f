package state_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/state"
)

// samples are small values of every kind, whose documents the tests of this file change.
func samples(t *testing.T) []any {
	t.Helper()
	one := state.Range{Start: 0, Stop: 1, Step: 1}
	column := func(name any, values any) state.Column {
		c, err := state.ColumnOf(name, values.([]int64))
		must.Do(t, err)
		return c
	}
	table, err := state.TableOf([]struct {
		A int64     `py:"a"`
		B *bool     `py:"b"`
		C string    `py:"c"`
		D time.Time `py:"d"`
	}{{1, nil, "x", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}})
	must.Do(t, err)
	ranked := state.Series{Column: column("n", []int64{5}), Index: state.Column{Dtype: "range", Range: &one}}
	words := column(nil, []int64{7, 8})
	sorts := column("k", []int64{1})
	sorts.Dtype, sorts.Categories, sorts.Ordered = "category", &words, true
	picture := state.Image{Width: 1, Height: 1, Mode: "RGBA"} // written out, because other versions of Go write other bytes
	picture.PNG, err = base64.StdEncoding.DecodeString("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAAEUlEQVR4nGJiYGBgAAQAAP//AA8AA/6P688AAAAASUVORK5CYII=")
	must.Do(t, err)
	day := state.Date{Year: 2026, Month: 2, Day: 28}
	return []any{
		nil, true, int64(-7), 1.5, "text", []any{int64(1), "a"}, map[string]any{"a": nil}, bigint("0x10000000000000000"), 1i, math.Inf(1), []byte("bytes"),
		state.Decimal("1.10"), big.NewRat(1, 3), state.UUID{15: 5}, day, state.TimeOfDay{Hour: 1, Zone: "Europe/Berlin", Fold: true}, state.TimeOfDay{Hour: 1, Zone: "-02:59:55"},
		time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", -5025)), time.Date(2026, 1, 2, 3, 4, 5, 0, state.Naive), 90*time.Minute + time.Microsecond, state.Timedelta{Days: -999999999},
		state.Tuple{int64(1)}, state.Set{int64(1)}, state.FrozenSet{"a"}, state.Dict{{int64(1), "a"}}, map[string]any{"$": int64(1)}, state.Range{Start: 5, Stop: -5, Step: -3}, state.Slice{Start: int64(1), Step: "x"},
		state.Deque{Items: []any{int64(1)}, MaxLen: new(5)}, state.Path{Path: `c:\x`, Windows: true, Pure: true}, state.Ellipsis, state.NA,
		state.Instance{Kind: state.KindSubclass, Type: "collections.OrderedDict", Value: state.Dict{{"z", int64(1)}}}, state.Instance{Kind: state.KindNamedTuple, Type: "shapes.P", Value: state.Dict{{"x", int64(1)}}},
		state.Instance{Kind: state.KindEnum, Type: "shapes.E.A", Value: "x"}, state.Instance{Kind: state.KindDefaultDict, Type: "builtins.list", Value: state.Dict{}},
		state.Array{Dtype: "<i4", Shape: []int{1, 2}, Data: make([]byte, 8)}, state.Array{Dtype: "|O", Shape: []int{1}, Objects: []any{"a"}}, state.Array{Dtype: `[["a","<i4"],["b","|u1",[2]]]`, Shape: []int{1}, Data: make([]byte, 6)},
		state.Scalar{Dtype: "<f8", Data: make([]byte, 8)}, state.Scalar{Dtype: "<m8[25s]", Data: make([]byte, 8)}, state.Timestamp{Time: time.Date(2026, 1, 1, 0, 0, 0, 1, state.Naive), Unit: "ns"}, state.Timestamp{Time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Unit: "s"},
		table, ranked, state.Index{Column: sorts}, picture, state.Image{Width: 1, Height: 1, Mode: "I", Raw: make([]byte, 4)},
	}
}

// parts returns the begin and end of each JSON value in a document, and of each member of an object or list.
func parts(doc []byte) (all [][2]int) {
	d := json.NewDecoder(bytes.NewReader(doc))
	var open []int
	for {
		before := int(d.InputOffset())
		token, err := d.Token()
		if err != nil {
			return all
		}
		end := int(d.InputOffset())
		begin := before + len(doc[before:end]) - len(bytes.TrimLeft(doc[before:end], ",: "))
		switch token {
		case json.Delim('{'), json.Delim('['):
			open = append(open, begin)
		case json.Delim('}'), json.Delim(']'):
			all = append(all, [2]int{open[len(open)-1], end})
			open = open[:len(open)-1]
		default:
			all = append(all, [2]int{begin, end})
		}
	}
}

// replacements take the place of each value of a document.
var replacements = []string{"null", "true", "2", "-1", "1.5", "1e400", "99999999999999999999", `""`, `"x"`, `"\ud800"`, `"a.b.C"`, "[]", "[1]", `[1,"a"]`, "{}", `{"$":1}`, `{"$":"none"}`, `{"$":"int","value":"1"}`, `{"$":"tuple","value":[1]}`, "", "!"}

// written returns the document of a value, without its beginning and end. It returns "=" if it is that of was.
func written(v any, was []byte) string {
	doc, err := state.Marshal(v)
	switch {
	case err != nil:
		return "error: " + err.Error()
	case bytes.Equal(doc, was):
		return "="
	}
	return strings.TrimSuffix(strings.TrimPrefix(string(doc), `{"v":1,"value":`), "}")
}

// TestChangedDocuments checks which changes of a document are still a document: each value of it is replaced
// by each of some others, and each document is cut at each byte. The accepted ones are in testdata, as are the
// Go types into which each document can be decoded, with the results.
func TestChangedDocuments(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	for i, x := range samples(t) {
		doc, err := state.Marshal(x)
		must.Do(t, err)
		var back any
		must.Do(t, state.Unmarshal(doc, &back))
		if again, err := state.Marshal(back); err != nil || !bytes.Equal(again, doc) {
			t.Errorf("%T: got %s and error %v, want %s", x, again, err, doc)
		}
		fmt.Fprintf(&out, "== %s\n", doc)
		for _, p := range parts(doc) {
			if i > 0 && p[1] == len(doc)-1 {
				continue // the whole value, as of the first sample
			}
			for _, with := range replacements {
				changed := slices.Concat(doc[:p[0]], []byte(with), doc[p[1]:])
				var got any
				if state.Unmarshal(changed, &got) == nil {
					fmt.Fprintf(&out, "%d-%d %s: %s\n", p[0], p[1], with, written(got, changed))
				}
			}
		}
		for n := range len(doc) {
			var got any
			if err := state.Unmarshal(doc[:n], &got); err == nil {
				t.Errorf("%T: %s is accepted", x, doc[:n])
			}
		}
		for _, target := range typed() {
			to := reflect.New(target)
			if state.Unmarshal(doc, to.Interface()) == nil {
				fmt.Fprintf(&out, "into %s: %s\n", target, written(to.Elem().Interface(), doc))
			}
		}
	}
	path := filepath.Join("testdata", "accepted.txt")
	if os.Getenv("UPDATE_ACCEPTED") != "" {
		must.Do(t, os.MkdirAll("testdata", 0o755))
		must.Do(t, os.WriteFile(path, []byte(out.String()), 0o600))
	}
	want, err := os.ReadFile(path)
	must.Do(t, err)
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(out.String(), "\n")); diff != "" {
		t.Errorf("what is accepted has changed; if this is wanted, UPDATE_ACCEPTED=1 go test -run ChangedDocuments ./state (-want +got):\n%s", diff)
	}
}

// typed returns the Go types into which documents are decoded.
func typed() []reflect.Type {
	return []reflect.Type{
		reflect.TypeFor[bool](), reflect.TypeFor[int8](), reflect.TypeFor[int64](), reflect.TypeFor[uint8](), reflect.TypeFor[uint64](), reflect.TypeFor[float32](), reflect.TypeFor[float64](), reflect.TypeFor[complex64](),
		reflect.TypeFor[string](), reflect.TypeFor[[]byte](), reflect.TypeFor[[5]byte](), reflect.TypeFor[[]int](), reflect.TypeFor[[1]int](), reflect.TypeFor[[]any](), reflect.TypeFor[[][]int32](), reflect.TypeFor[map[string]any](), reflect.TypeFor[map[int]string](), reflect.TypeFor[map[int]struct{}](),
		reflect.TypeFor[*int](), reflect.TypeFor[*big.Int](), reflect.TypeFor[*big.Rat](), reflect.TypeFor[time.Time](), reflect.TypeFor[time.Duration](), reflect.TypeFor[Point](), reflect.TypeFor[[]Point](),
		reflect.TypeFor[state.Decimal](), reflect.TypeFor[state.UUID](), reflect.TypeFor[state.Date](), reflect.TypeFor[state.TimeOfDay](), reflect.TypeFor[state.Timedelta](), reflect.TypeFor[state.Tuple](), reflect.TypeFor[state.Set](), reflect.TypeFor[state.FrozenSet](), reflect.TypeFor[state.Dict](),
		reflect.TypeFor[state.Range](), reflect.TypeFor[state.Slice](), reflect.TypeFor[state.Deque](), reflect.TypeFor[state.Path](), reflect.TypeFor[state.Singleton](), reflect.TypeFor[state.Instance](), reflect.TypeFor[state.Array](), reflect.TypeFor[state.Scalar](), reflect.TypeFor[state.Timestamp](),
		reflect.TypeFor[state.Table](), reflect.TypeFor[state.Series](), reflect.TypeFor[state.Index](), reflect.TypeFor[state.Image](), reflect.TypeFor[state.Opaque](), reflect.TypeFor[state.Value](),
	}
}
