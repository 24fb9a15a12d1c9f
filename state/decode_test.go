package state_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/state"
)

func document(body string) []byte { return []byte(`{"v":1,"value":` + body + `}`) }

// Anything that does not match the format exactly is refused, whatever the
// target.
func TestMalformed(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{
		``, `1`, `{"v":2,"value":1}`, `{"v":1,"value":1} `, `{"v":1,"value":1}}`, `{"v":1,"value":1`, `{"v":1,"value":`, ` {"v":1,"value":1}`,
	} {
		malformed(t, []byte(doc))
	}
	for _, body := range []string{
		`nul`, `NaN`, `Infinity`, `-Infinity`, `-`, `01`, `-01`, `-0`, `1.`, `.5`, `1e`, `1e+`, `+1`, `0x1`, `1_0`, `1e400`, strings.Repeat("1", 40),
		`9223372036854775808`, `-9223372036854775809`, `"`, `"a`, `"\`, `"\u12`, `"\ud800"`, `"\udc00\ud800"`, `"\ud800\u0041"`, `"\x41"`, "\"\n\"", "\"\xff\"", "\"\\n\xff\"", `'a'`,
		`[`, `[1`, `[1,`, `[1,]`, `[,1]`, `[1 ]`, `[1, 2]`, `{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,}`, `{a:1}`, `{1:1}`, `{"a" :1}`, `{"a":1,"$":"tuple"}`,
		`{"$"`, `{"$":1}`, `{"$":"nope"}`, `{"$":"tuple"}`, `{"$":"tuple","items":[1]`, `{"$":"tuple","items":[1],"x":1}`, `{"$":"tuple","items":{}}`,
		`{"$":"dict","items":[[1]]}`, `{"$":"dict","items":[[1,2,3]]}`, `{"$":"dict","items":[1]}`, `{"$":"dict","items":[[1,2]}`,
		`{"$":"int","hex":""}`, `{"$":"int","hex":"-"}`, `{"$":"int","hex":"--8000000000000000"}`, `{"$":"int","hex":"7fffffffffffffff"}`, `{"$":"int","hex":"08000000000000000"}`, `{"$":"int","hex":"8000_0000_0000_0000_0"}`, `{"$":"int","hex":"+8000000000000000"}`, `{"$":"int","hex":"FFFFFFFFFFFFFFFFF"}`, `{"$":"int","hex":"0x8000000000000000"}`,
		`{"$":"float","text":"1.0"}`, `{"$":"float","text":"NaN"}`, `{"$":"bytes","base64":"a"}`, `{"$":"bytes","base64":"YQ"}`, `{"$":"bytes","base64":"YR=="}`, "{\"$\":\"bytes\",\"base64\":\"YQ\n==\"}", `{"$":"bytes","base64":"YQ=="`,
		`{"$":"str","base64":"YQ=="}`, `{"$":"str","base64":"/w=="}`, `{"$":"list","float64":"YQ=="}`, `{"$":"list","items":[]}`,
		`{"$":"datetime","iso":"2026-11-21"}`, `{"$":"datetime","iso":"2026-13-21T00:00:00.000000"}`, `{"$":"datetime","iso":"0000-01-01T00:00:00.000000"}`, `{"$":"datetime","iso":"2026-01-01T00:00:00.000000","offset":86400}`, `{"$":"datetime","iso":"2026-01-01T00:00:00.000000","offset":1.0}`, `{"$":"datetime","iso":"2026-01-01T00:00:00.000000","zone":"UTC"}`,
		`{"$":"timedelta","days":1000000000,"seconds":0,"microseconds":0}`, `{"$":"timedelta","days":0,"seconds":-1,"microseconds":0}`, `{"$":"timedelta","days":0,"seconds":86400,"microseconds":0}`, `{"$":"timedelta","days":0,"seconds":0,"microseconds":1000000}`, `{"$":"timedelta","days":0,"seconds":0}`,
		`["\u,12]`, `["\ud800\u,12]`, `{"$":tuple","items":[1]}`, `{"$":"tuple"1]}`, `{"$":"tuple","items":1]}`, `{"$":"int","hex":8000000000000000"}`, `{"$":"bytes","base64":YQ=="}`,
		`{"$":"dict","items":[1,2]]}`, `{"$":"dict","items":[[1,2],3,4]]}`, `{"$":"dict","items":[[1,2]}`, `{"$":"dict","items":[[1:2]]}`,
		`{"$":"opaque","type":"x"}`, `{"$":"none"}`, `{"$":"bool"}`,
	} {
		malformed(t, document(body))
		malformed(t, document(`{"$":"enum","value":{"type":"m.E.A","value":`+body+`}}`))
		malformed(t, document(`{"$":"defaultdict","value":{"type":"builtins.int","value":{"a":`+body+`}}}`))
	}
}

func malformed(t *testing.T, doc []byte) {
	t.Helper()
	var v any
	err := state.Unmarshal(doc, &v)
	if e, ok := errors.AsType[*state.DecodeError](err); !ok || e.Type != nil {
		t.Errorf("%.100s decodes to %v, %v, want a *state.DecodeError without a type", doc, v, err)
	}
	if _, err := state.Parse(doc, state.Bounds{}); err == nil {
		t.Errorf("%.100s is a value, want an error", doc)
	}
}

func TestRepeatedKeys(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"$":"dict","items":[["a",1],["a",2]]}`} {
		for _, target := range []any{new(any), new(map[string]int), new(state.Dict), new(struct {
			A int `py:"a"`
		})} {
			if err := state.Unmarshal(document(body), target); err == nil {
				t.Errorf("%s into %T: %v, want an error", body, target, reflect.ValueOf(target).Elem())
			}
		}
	}
	if err := state.Unmarshal(document(`{"$":"set","items":[1,1]}`), new(map[int]struct{})); err == nil {
		t.Error("a set with an item twice, want an error")
	}
}

func TestMismatch(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		body   string
		target any
		error  string
	}{
		{`1`, new(string), "a Python int cannot be stored in string"},
		{`1`, new(bool), "int cannot be stored in bool"},
		{`true`, new(int), "bool cannot be stored in int"},
		{`1.0`, new(int), "float cannot be stored in int"},
		{`"1"`, new(int), "str cannot be stored in int"},
		{`null`, new(int), "none cannot be stored in int"},
		{`null`, new(struct{}), "none cannot be stored in struct"},
		{`300`, new(uint8), "a Python int that uint8 cannot hold"},
		{`-1`, new(uint), "cannot hold"},
		{`{"$":"int","hex":"8000000000000000"}`, new(int64), "cannot hold"},
		{`{"$":"int","hex":"10000000000000000"}`, new(uint64), "cannot hold"},
		{`[{"$":"int","hex":"8000000000000000"}]`, new([]int), "[0] (byte 52): a Python int that int cannot hold"},
		{`[{"$":"int","hex":"8000000000000000"}]`, new([]int64), "cannot hold"},
		{`{"$":"complex","value":[1e300,0.0]}`, new(complex64), "complex cannot be stored in complex64"},
		{`9007199254740993`, new(float64), "cannot hold"},
		{`9223372036854775807`, new(float64), "cannot hold"},
		{`16777217`, new(float32), "cannot hold"},
		{`1e300`, new(float32), "cannot hold"},
		{`[1]`, new([]byte), "list cannot be stored in []uint8"},
		{`[1]`, new(map[int]struct{}), "list cannot be stored in map"},
		{`[1]`, new([2]int), "a Python list of 1 items cannot be stored in [2]int"},
		{`[1,2,3]`, new([2]int), "decode [2] (byte 20): a Python list with more items than [2]int has"},
		{`{"$":"bytes","base64":"YQ=="}`, new([2]byte), "bytes cannot be stored in [2]uint8"},
		{`{"$":"bytes","base64":"YQ=="}`, new(string), "bytes cannot be stored in string"},
		{`{"a":[1,{"b":"x"}]}`, new(map[string][]any), ""},
		{`{"a":[{"b":"x"}]}`, new(map[string][]map[string]int), `decode ["a"][0]["b"] (byte 29): a Python str cannot be stored in int`},
		{`{"$":"dict","items":[[1,2]]}`, new(map[string]int), "decode [key] (byte 38): a Python int cannot be stored in string"},
		{`{"$":"dict","items":[[1,2]]}`, new(struct{}), "a Python int as a key cannot be stored in struct"},
		{`{"$":"dict","items":[[{"$":"tuple","items":[1]},2]]}`, new(map[any]int), "decode into Dict"},
		{`{"$":"opaque","type":"m.T","repr":"<T>","reason":"it is large"}`, new(int), "a Python m.T, which has no Go form (<T>): it is large cannot be stored in int"},
		{`1`, new(fmt.Stringer), "cannot be stored in fmt.Stringer"},
		{`1`, new(time.Time), "int cannot be stored in time.Time"},
		{`1`, new(time.Duration), "int cannot be stored in time.Duration"},
		{`1.0`, new(big.Int), "float cannot be stored in big.Int"},
		{`1`, new(state.Opaque), "int cannot be stored in state.Opaque"},
		{`[]`, new(state.Dict), "list cannot be stored in state.Dict"},
		{`1`, new(chan int), "int cannot be stored in chan int"},
		{`{"$":"timedelta","days":106752,"seconds":0,"microseconds":0}`, new(time.Duration), "292 years"},
	} {
		err := state.Unmarshal(document(test.body), test.target)
		if test.error == "" {
			if err != nil {
				t.Errorf("%s into %T: %v", test.body, test.target, err)
			}
			continue
		}
		if e, ok := errors.AsType[*state.DecodeError](err); !ok || e.Type == nil || !strings.Contains(e.Error(), test.error) {
			t.Errorf("%s into %T: %v, want %q and a type", test.body, test.target, err, test.error)
		}
	}
	for _, target := range []any{nil, 1, (*int)(nil)} {
		err := state.Unmarshal(document(`1`), target)
		if e, ok := errors.AsType[*state.DecodeError](err); !ok || e.Type != reflect.TypeOf(target) {
			t.Errorf("into %T: got %v, want a *state.DecodeError with this type", target, err)
		}
	}
}

// Values that can be decoded although the kinds are not those that the table
// pairs.
func TestLenient(t *testing.T) {
	t.Parallel()
	check(t, `3`, 3.0)
	check(t, `{"$":"tuple","items":[1,2]}`, []int{1, 2})
	check(t, `{"$":"set","items":[1,2]}`, []int{1, 2})
	check(t, `[1,2]`, [2]int{1, 2})
	check(t, `{"$":"frozenset","items":[1]}`, map[int]struct{}{1: {}})
	check(t, `{"$":"bytearray","base64":"YQ=="}`, []byte("a"))
	check(t, `null`, []int(nil))
	check(t, `null`, map[string]int(nil))
	check(t, `null`, state.Dict(nil))
	check(t, `{"X":1,"other":{"$":"set","items":[[1]]},"Y":2}`, Point{X: 1, Y: 2})
	check(t, `{"$":"list","float64":""}`, []float64{})
	check(t, `"\ud83d\ude00\/\b\f\n\r\t\"\\"`, "😀/\b\f\n\r\t\"\\")
	check(t, `{"$":"list","float64":"AAAAAAAA8D8AAAAAAAAAQA=="}`, [2]float32{1, 2})
	check(t, `-0.0e-5`, mustNegativeZero())
}

func mustNegativeZero() float64 { z := 0.0; return -1 * z }

func check[T any](t *testing.T, body string, want T) {
	t.Helper()
	var got T
	if err := state.Unmarshal(document(body), &got); err != nil {
		t.Errorf("%s: %v", body, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", body, diff)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	limits := state.Bounds{MaxBytes: 200, MaxDepth: 3, MaxNodes: 10, MaxIntDigits: 20}
	for _, test := range []struct {
		body, limit string
	}{
		{`[[[1]]]`, ""},
		{`[[[[1]]]]`, "MaxDepth"},
		{`{"a":{"b":{"c":{}}}}`, "MaxDepth"},
		{`{"$":"tuple","items":[{"$":"tuple","items":[{"$":"tuple","items":[[]]}]}]}`, "MaxDepth"},
		{`[[[{"$":"list","float64":""}]]]`, "MaxDepth"},
		{`[1,2,3,4,5,6,7,8,9]`, ""},
		{`[1,2,3,4,5,6,7,8,9,10]`, "MaxNodes"},
		{`[1,2,3,4,5,6,7,{"$":"enum","value":{"type":"m.E.A","value":1}}]`, ""},
		{`[1,2,3,4,5,6,7,8,{"$":"enum","value":{"type":"m.E.A","value":1}}]`, "MaxNodes"},
		{`{"$":"list","float64":"` + strings.Repeat("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", 4) + `"}`, "MaxNodes"},
		{`{"$":"int","hex":"` + strings.Repeat("f", 20) + `"}`, ""},
		{`{"$":"int","hex":"-` + strings.Repeat("f", 21) + `"}`, "MaxIntDigits"},
		{`"` + strings.Repeat("x", 200) + `"`, "MaxBytes"},
	} {
		var v any
		_, parsed := state.Parse(document(test.body), limits)
		for _, err := range []error{parsed, state.UnmarshalLimits(document(test.body), &v, limits)} {
			got := ""
			if e, ok := errors.AsType[*state.LimitError](err); ok {
				got = e.Limit
			} else if err != nil {
				t.Errorf("%s: got %v, want a *state.LimitError", test.body, err)
			}
			if got != test.limit {
				t.Errorf("%s: got the limit %q, want %q", test.body, got, test.limit)
			}
		}
	}
}

func TestValue(t *testing.T) {
	t.Parallel()
	var parts struct {
		A state.Value
		B []state.Value
		C state.Value
	}
	must.Do(t, state.Unmarshal(document(`{"A":[1,[{"$":"opaque","type":"a","repr":"b","reason":""}]],"B":[1,1.5,"s"],"C":{"x":[]}}`), &parts))
	if got, want := []bool{parts.A.Opaque(), parts.B[0].Opaque(), parts.C.Opaque()}, []bool{true, false, false}; !slices.Equal(got, want) {
		t.Errorf("opaque: %v, want %v", got, want)
	}
	var kinds []state.Kind
	for _, v := range append(parts.B, parts.A, parts.C, state.Value{}) {
		kinds = append(kinds, v.Kind())
		// The value's own report matches the result of parsing.
		again, err := state.Parse(v.Bytes(), state.Bounds{})
		if err != nil || again.Kind() != v.Kind() || again.Opaque() != v.Opaque() {
			t.Errorf("%s: got %v, want kind %v, opaque %v and no error", v.Bytes(), err, v.Kind(), v.Opaque())
		}
		var x any
		if err := v.Decode(&x); err != nil {
			t.Errorf("%s: %v", v.Bytes(), err)
		}
	}
	if diff := cmp.Diff([]state.Kind{"int", "float", "str", "list", "dict", "none"}, kinds); diff != "" {
		t.Error(diff)
	}
	roundTripBytes(t, []any{parts.C, map[string]state.Value{"k": parts.B[1]}}, `[{"x":[]},{"k":1.5}]`)
	// The depth counts from the position of the value.
	half := mustValue(t, deep(99))
	if _, err := state.Marshal([]any{half}); err != nil {
		t.Error(err)
	}
	v := any(half)
	for range 101 {
		v = []any{v}
	}
	if _, err := state.Marshal(v); err == nil {
		t.Error("a value too deep in others, want an error")
	}
}

func roundTripBytes(t *testing.T, v any, want string) {
	t.Helper()
	doc, err := state.Marshal(v)
	if err != nil || !bytes.Equal(doc, document(want)) {
		t.Errorf("%s, %v; want %s", doc, err, want)
	}
}

// No input causes a panic, and an accepted one is returned unchanged.
func FuzzUnmarshal(f *testing.F) {
	for _, body := range []string{`1`, `[1.5,"a",null]`, `{"a":{"$":"tuple","items":[true]}}`, `{"$":"dict","items":[[1,2]]}`, `{"$":"datetime","iso":"2026-01-01T00:00:00.000000","offset":3600,"zone":"Europe/Berlin"}`, `{"$":"set","items":[1]}`, `{"$":"opaque","type":"a","repr":"b","reason":""}`, `{"$":"timedelta","days":-1,"seconds":0,"microseconds":1}`, `{"$":"int","hex":"-ffffffffffffffffffff"}`,
		`{"$":"complex","value":[1.0,2.0]}`, `{"$":"decimal","value":"1E+2"}`, `{"$":"fraction","value":[1,3]}`, `{"$":"date","value":"2026-11-21"}`, `{"$":"time","value":{"iso":"01:02:03.000004","zone":"+01:00","fold":true}}`, `{"$":"timestamp","value":{"value":1,"unit":"ns","zone":"UTC"}}`, `{"$":"uuid","value":"00000000-0000-0000-0000-000000000005"}`, `{"$":"path","value":{"path":"a"}}`, `{"$":"range","value":[1,2,3]}`, `{"$":"slice","value":[1,null,"x"]}`, `{"$":"deque","value":{"items":[1],"maxlen":2}}`, `{"$":"singleton","value":"NaT"}`, `{"$":"enum","value":{"type":"m.E.A","value":3}}`,
		`{"$":"scalar","value":{"dtype":"<i2","data":{"$":"bytes","base64":"BQA="}}}`, `{"$":"ndarray","value":{"dtype":"<i2","shape":[1,1],"fortran":true,"data":{"$":"bytes","base64":"BQA="}}}`, `{"$":"ndarray","value":{"dtype":"|O","shape":[1],"objects":[null]}}`, `{"$":"ndarray","value":{"dtype":"[[\"a\",\"<i2\"]]","shape":[1],"data":{"$":"bytes","base64":"BQA="}}}`,
		`{"$":"index","value":{"name":null,"dtype":"range","range":{"$":"range","value":[0,3,1]}}}`, `{"$":"series","value":{"values":{"name":"n","dtype":"category","data":{"$":"ndarray","value":{"dtype":"|i1","shape":[1],"data":{"$":"bytes","base64":"AA=="}}},"categories":{"name":null,"dtype":"range","range":{"$":"range","value":[0,3,1]}}},"index":{"name":null,"dtype":"range","range":{"$":"range","value":[0,1,1]}}}}`,
		`{"$":"image","value":{"mode":"CMYK","width":1,"height":1,"raw":{"$":"bytes","base64":"AAAAAA=="}}}`} {
		f.Add(document(body))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		limits := state.Bounds{MaxBytes: 1 << 16, MaxNodes: 1 << 12}
		value, err := state.Parse(doc, limits)
		var x any
		if decoded := state.UnmarshalLimits(doc, &x, limits); (decoded == nil) && err != nil {
			t.Fatalf("decodes, but is no value: %v", err)
		} else if decoded != nil {
			return
		}
		for _, target := range []any{new(outer), new([]int), new(map[string]float64), new(state.Dict), new([2]string), new(time.Time), new(map[any]struct{}), new(*big.Int), new(*big.Rat), new([][]float64), new([]any), new(state.Table), new(state.Instance), new(complex64)} {
			_ = state.UnmarshalLimits(doc, target, limits)
		}
		if text := value.String(); !utf8.ValidString(text) {
			t.Errorf("got %q, want text that is UTF-8", text)
		}
		if value.Opaque() {
			return
		}
		again, err := state.Marshal(x)
		if err != nil {
			if _, ok := errors.AsType[*state.UnsupportedValueError](err); ok {
				return // such as a set with a duplicate item
			}
			t.Fatalf("%v: %s", err, doc)
		}
		var y any
		if err := state.Unmarshal(again, &y); err != nil {
			t.Fatalf("%v\nfirst %s\nagain %s", err, doc, again)
		}
		third, err := state.Marshal(y)
		if err != nil || !bytes.Equal(again, third) {
			t.Fatalf("%v\nagain %s\nthird %s", err, again, third)
		}
	})
}

// Both codecs agree on every document that Go makes. Run it with
// -fuzzminimizetime=1x: while the fuzzer minimizes an input that is merely new,
// which takes it a minute each, it counts no executions.
func FuzzThroughPython(f *testing.F) {
	python := startPython(f)
	f.Add("a", []byte{1}, int64(1), 1.5, true)
	f.Add("\xed\xa0\x80", []byte(nil), int64(-1), math.Copysign(0, -1), false)
	f.Add("$", []byte{0xff}, int64(1<<62), 5e-324, true)
	f.Fuzz(func(t *testing.T, s string, b []byte, i int64, fl float64, flag bool) {
		doc, err := state.Marshal(map[string]any{
			s: []any{s, b, i, fl, flag}, "n": new(big.Int).Mul(big.NewInt(i), big.NewInt(i)), "t": time.Unix(i%(1<<35), i%1000*1000).UTC(),
			"d": time.Duration(i/1000) * 1000, "set": state.FrozenSet{s, i, state.Tuple{fl}}, "k": state.Dict{{i, s}, {s, i}},
			"forms": []any{complex(fl, -fl), state.Decimal(fmt.Sprintf("%de%d", i, int(int8(i))/4)), big.NewRat(i, 1+int64(len(b))), state.Timedelta{Days: i % 999_999_999, Seconds: int64(len(s)) % 86400},
				state.UUID{1: byte(i)}, state.Deque{Items: []any{s, fl}}, state.Slice{Start: i, Stop: s}, state.Range{Start: i, Stop: -i, Step: int64(len(b)) + 1}, state.TimeOfDay{Microsecond: len(b) % 1_000_000, Fold: flag},
				state.Instance{Kind: state.KindSubclass, Type: "collections.OrderedDict", Value: state.Dict{{i, s}, {s, i}}}, state.DateOf(time.Unix(i%(1<<35), 0).UTC())},
		})
		if err != nil {
			if _, ok := errors.AsType[*state.UnsupportedValueError](err); !ok {
				t.Fatalf("got %v, want a *state.UnsupportedValueError", err)
			}
			return
		}
		back, err := python.eval(t, doc, "x")
		if err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		if !bytes.Equal(back, doc) {
			t.Fatalf("go     %s\npython %s", doc, back)
		}
	})
}

// The value that a pointer leads to is decoded into, and not replaced.
func TestDecodeIntoWhatIsThere(t *testing.T) {
	t.Parallel()
	there := &struct{ A, B int }{1, 2}
	into := there
	must.Do(t, state.Unmarshal(document(`{"B":3}`), &into))
	if into != there || there.A != 1 || there.B != 3 {
		t.Errorf("got %+v, and the same pointer %t, want 1 and 3 in what was there", *into, into == there)
	}
	targets := struct {
		Any     any
		Pointer *int
		Slice   []int
		Map     map[string]int
	}{1, new(int), []int{1}, map[string]int{"a": 1}}
	must.Do(t, state.Unmarshal(document(`{"Any":null,"Pointer":null,"Slice":null,"Map":null}`), &targets))
	if targets.Any != nil || targets.Pointer != nil || targets.Slice != nil || targets.Map != nil {
		t.Errorf("got %+v, want None in place of what was there", targets)
	}
}
