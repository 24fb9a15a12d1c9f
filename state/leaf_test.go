package state_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/state"
)

// kept is a PythonUnmarshaler that keeps its argument.
type kept struct{ value state.Value }

func (k *kept) UnmarshalPython(v state.Value) error {
	k.value = v
	return nil
}

func (k kept) MarshalPython() (any, error) { return k.value, nil }

// leaf is a value of one kind that is stored beside a document from 64 KiB on.
type leaf struct {
	name  string
	value any
	typed any // a pointer to a target that takes nothing else
}

func leaves(tb testing.TB, size int) []leaf {
	tb.Helper()
	data := bytes.Repeat([]byte("0123456789abcde"), size/15+1)[:size]
	numbers := make([]float64, size/8)
	mixed := make([]any, size/8)
	for i := range numbers {
		numbers[i] = float64(i) / 3
		mixed[i] = numbers[i]
	}
	array, err := state.ArrayOf(data)
	must.Do(tb, err)
	matrix, err := state.ArrayOf(numbers, 1, len(numbers))
	must.Do(tb, err)
	column, err := state.ColumnOf("n", numbers)
	must.Do(tb, err)
	return []leaf{
		{"bytes", data, new([]byte)},
		{"text", string(data), new(string)},
		{"text with surrogates", "\xed\xa0\x80" + string(data), new(string)},
		{"text that looks like a blob", `{"$":"blob","sha256":"` + string(data), new(string)},
		{"array", array, new([]uint8)},
		{"matrix", matrix, new([][]float64)},
		{"objects", state.Array{Dtype: "|O", Shape: []int{1}, Objects: []any{data}}, new(state.Array)},
		{"floats", numbers, new([]float64)},
		{"floats in interfaces", mixed, new([]float64)},
		{"series", state.Series{Column: column}, new(state.Series)},
		{"scalar", state.Scalar{Dtype: fmt.Sprintf("|S%d", size), Data: data}, new(state.Scalar)},
		{"image", state.Image{Mode: "I;16", Width: size / 2, Height: 1, Raw: data[:size/2*2]}, new(state.Image)},
		{"deque", state.Deque{Items: []any{data, string(data)}}, new(state.Deque)},
		{"instance", state.Instance{Kind: state.KindSubclass, Type: "m.Bytes", Value: data}, new([]byte)},
		{"key", state.Dict{{data, data}, {"$", numbers}}, new(state.Dict)},
		{"set", state.Set{data}, new([][]byte)},
		{"one leaf twice", []any{data, "between", data, numbers}, new([]any)},
		{"deep", []any{map[string]any{"a": state.Tuple{data, []any{numbers}}}}, new([]any)},
	}
}

// A value that NewValue took comes back from every kind of target, and can be saved and
// loaded from there, however large its leaves are.
func TestLargeLeavesInEveryTarget(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1<<16 - 1, 1 << 16, 1<<16 + 1} {
		for _, leaf := range leaves(t, size) {
			t.Run(fmt.Sprintf("%s of %d", leaf.name, size), func(t *testing.T) {
				t.Parallel()
				value := mustValue(t, leaf.value)
				want := decoded(t, value)
				for name, got := range everyTarget(t, leaf, value) {
					if !bytes.Equal(got.Bytes(), value.Bytes()) {
						t.Errorf("from %s: another document came back: %.80s, want %.80s", name, got.Bytes(), value.Bytes())
						continue
					}
					if got.Size() != value.Size() {
						t.Errorf("from %s: it has %d bytes with its blobs, want %d", name, got.Size(), value.Size())
					}
					if x := decoded(t, got); !reflect.DeepEqual(x, want) {
						t.Errorf("from %s: got %.100v, want %.100v", name, x, want)
					}
					reloaded(t, name, got)
				}
			})
		}
	}
}

func decoded(t *testing.T, v state.Value) any {
	t.Helper()
	var x any
	must.Do(t, v.Decode(&x))
	return x
}

// everyTarget returns the value as it comes out of each kind of target: alone, or as a
// part of a larger value.
func everyTarget(t *testing.T, leaf leaf, value state.Value) map[string]state.Value {
	t.Helper()
	into := func(v state.Value, target any) {
		t.Helper()
		if err := v.Decode(target); err != nil {
			t.Errorf("into %T: %v", target, err)
		}
	}
	out := map[string]state.Value{}
	var plain state.Value
	into(value, &plain)
	var pointer *state.Value
	into(value, &pointer)
	var custom kept
	into(value, &custom)
	var customPointer *kept
	into(value, &customPointer)
	out["a Value"], out["a *Value"], out["a PythonUnmarshaler"], out["a pointer to one"] = plain, *pointer, custom.value, customPointer.value

	// The parts before and after have blobs of their own.
	other := bytes.Repeat([]byte("other"), 1<<14)
	var list []state.Value
	into(mustValue(t, []any{other, leaf.value, other}), &list)
	var tuple [2]state.Value
	into(mustValue(t, state.Tuple{leaf.value, other}), &tuple)
	var unmarshalers []kept
	into(mustValue(t, []any{other, leaf.value}), &unmarshalers)
	dict := mustValue(t, state.Dict{{"other", other}, {"x", leaf.value}, {"y", []any{leaf.value}}})
	var fields struct {
		X state.Value    `py:"x"`
		Y []*state.Value `py:"y"`
	}
	into(dict, &fields)
	var values map[string]state.Value
	into(dict, &values)
	var customs map[string]*kept
	into(dict, &customs)
	var within state.Value // of a Value
	into(values["y"], &list)
	within, list = list[0], nil
	into(mustValue(t, []any{other, leaf.value, other}), &list)
	out["a slice of Value"], out["an array of Value"], out["a slice of PythonUnmarshaler"] = list[1], tuple[0], unmarshalers[1].value
	out["a field that is a Value"], out["a slice in a field"] = fields.X, *fields.Y[0]
	out["a map of Value"], out["a map of PythonUnmarshaler"], out["a Value in a Value"] = values["x"], customs["x"].value, within

	var whole state.Value
	if err := state.Unmarshal(value.Bytes(), &whole); err != nil {
		t.Error(err)
	}
	again := mustValue(t, decoded(t, value))
	out["any"], out["a Value of a document in one piece"] = again, mustValue(t, decoded(t, whole))
	into(value, leaf.typed)
	if !strings.HasPrefix(leaf.name, "matrix") && leaf.name != "array" && leaf.name != "set" && leaf.name != "instance" { // these lose their kind
		out["a typed target"] = mustValue(t, reflect.ValueOf(leaf.typed).Elem().Interface())
	}
	return out
}

// reloaded checks that a state that holds the value is written as a file that Load reads.
func reloaded(t *testing.T, name string, value state.Value) {
	t.Helper()
	st := state.New()
	for key, v := range map[string]any{"alone": value, "within": []any{value, kept{value}}} {
		if err := st.Set(key, v); err != nil {
			t.Errorf("from %s: %v", name, err)
			return
		}
	}
	var file bytes.Buffer
	if _, err := st.WriteTo(&file); err != nil {
		t.Errorf("from %s: %v", name, err)
		return
	}
	back, err := state.Load(&file, state.Bounds{})
	if err != nil {
		t.Errorf("from %s: what was saved is refused: %v", name, err)
		return
	}
	if v, _ := back.Value("alone"); !bytes.Equal(v.Bytes(), value.Bytes()) {
		t.Errorf("from %s: another document was loaded: %.80s", name, v.Bytes())
	}
}

// A Value is independent of later changes to the variables that it was made from or decoded
// into.
func TestValueIsACopy(t *testing.T) {
	t.Parallel()
	for _, size := range []int{100, 1<<16 - 8, 1 << 16, 1<<16 + 8, 1 << 17} {
		data := bytes.Repeat([]byte{7}, size)
		numbers := make([]float64, size/8)
		objects := []any{data}
		mapping := map[string]any{"a": data}
		array, err := state.ArrayOf(numbers)
		must.Do(t, err)
		for _, given := range []any{
			data, &data, numbers, objects, mapping, array, state.Deque{Items: objects}, state.Series{Column: state.Column{Dtype: "float64", Data: array}},
			state.Scalar{Dtype: fmt.Sprintf("|S%d", size), Data: data}, state.Image{Mode: "I;16", Width: size / 2, Height: 1, Raw: data},
			state.Array{Dtype: "|O", Shape: []int{1}, Objects: objects}, big.NewInt(7),
		} {
			value := mustValue(t, given)
			parsed, err := state.Parse(bytes.Clone(value.Bytes()), state.Bounds{})
			must.Do(t, err)
			before := bytes.Clone(value.Bytes())
			overwrite := func() {
				for _, b := range [][]byte{data, array.Data} {
					for i := range b {
						b[i]++
					}
				}
				for i := range numbers {
					numbers[i]++
				}
			}
			overwrite()
			for _, v := range []state.Value{value, parsed} {
				scribble(reflect.ValueOf(decoded(t, v)))
				if !bytes.Equal(v.Bytes(), before) {
					t.Errorf("%T of %d bytes: the value changed with what its caller wrote", given, size)
				}
			}
		}
	}
}

// scribble changes all bytes and numbers of a decoded value.
func scribble(v reflect.Value) {
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		if !v.IsNil() {
			scribble(v.Elem())
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			b := v.Bytes()
			for i := range b {
				b[i]++
			}
			return
		}
		for i := range v.Len() {
			scribble(v.Index(i))
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			scribble(it.Value())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			scribble(v.Field(i))
		}
	}
}

// A pointer is sent as its target, at any depth of pointers and in any container.
func TestPointersGoAsTheirValues(t *testing.T) {
	t.Parallel()
	when := time.Date(2026, 11, 21, 2, 40, 58, 123456000, time.UTC)
	took, number, ratio := time.Minute, big.NewInt(5), big.NewRat(1, 3)
	date, delta := state.Date{Year: 2026, Month: 11, Day: 21}, state.Timedelta{Days: 1}
	value, path := mustValue(t, []any{1}), state.Path{Path: "/a"}
	same := func(of any, pointers ...any) {
		t.Helper()
		want, err := state.Marshal(of)
		must.Do(t, err)
		for _, x := range pointers {
			if got, err := state.Marshal(x); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%T: %s, %v, want %s and no error", x, got, err, want)
			}
		}
	}
	same(when, &when, new(&when), any(&when))
	same([]any{when}, []*time.Time{&when}, []any{&when})
	same(map[string]any{"T": when}, map[string]*time.Time{"T": &when}, struct{ T *time.Time }{&when}, &struct{ T **time.Time }{new(&when)})
	same(state.Set{when}, state.Set{&when}, map[*time.Time]struct{}{&when: {}})
	same(took, &took, new(&took))
	same(number, *number, new(number))
	same(ratio, *ratio, new(ratio))
	same(date, &date)
	same(delta, &delta)
	same(path, &path)
	same(value, &value, new(&value))
}

// A shared part is sent as often as it occurs: only a part that contains itself is a cycle.
func TestSharedValuesAreNoCycles(t *testing.T) {
	t.Parallel()
	type knot struct{ Next *knot }
	number := new(7)
	end := &knot{}
	numbers := []int{1, 2}
	inItself := []any{1, nil}
	inItself[1] = inItself[:1] // at its address, but shorter
	type field struct{ Number int }
	type owner struct {
		Field field
		Same  *field
	}
	first := &owner{}
	first.Same = &first.Field // at its address, but of another type
	inArray := &[1]any{}
	inArray[0] = &numbers
	for _, shared := range []any{
		[]any{1}, []any{}, state.Tuple{1}, map[string]any{"a": 1}, map[string]any{}, state.Dict{{"a", 1}}, number, &number, end, &knot{end}, &knot{},
		state.Set{1}, numbers, numbers[:1], []float64{1}, mustValue(t, []any{1}), struct{}{}, &struct{}{},
		inItself, state.Tuple{inItself}, first, *first, []*owner{first}, inArray, inArray[:],
	} {
		for _, depth := range []int{0, 62, 63, 64, 65, 150} { // references are remembered from 64 on
			var nested any = []any{shared, shared, map[string]any{"a": shared, "b": []any{shared}}, state.Tuple{shared}, state.Dict{{"a", shared}}, numbers, numbers[:1], slices.Repeat([]any{shared}, state.DefaultMaxDepth)}
			for range depth {
				nested = []any{nested}
			}
			if _, err := state.Marshal(nested); err != nil {
				t.Errorf("%T shared %d deep: %v", shared, depth, err)
			}
		}
	}
}

// A value that NewValue took fits the default limits of its readers.
func TestNewValueKeepsTheLimits(t *testing.T) {
	t.Parallel()
	digits := new(big.Int).Lsh(big.NewInt(1), 4*state.DefaultMaxIntDigits-1)
	reloaded(t, "the longest int", mustValue(t, digits))
	for _, x := range []*big.Int{new(big.Int).Lsh(digits, 1), new(big.Int).Neg(new(big.Int).Lsh(digits, 1))} {
		for _, v := range []any{x, *x, []any{x}, new(big.Rat).SetInt(x)} {
			if _, err := state.NewValue(v); !isLimit(err, "MaxIntDigits") {
				t.Errorf("a longer int as %T: %v, want a *state.LimitError of MaxIntDigits", v, err)
			}
		}
	}
	const block = 1 << 20
	for _, list := range []any{make([]int8, block-1), make([]float64, block-1)} { // the list counts, too
		parts := slices.Repeat([]state.Value{mustValue(t, list)}, state.DefaultMaxNodes/block)
		if _, err := state.NewValue(parts); !isLimit(err, "MaxNodes") {
			t.Errorf("one part too many in lists of %T: %v, want a *state.LimitError of MaxNodes", list, err)
		}
		if _, err := state.NewValue(parts[1:]); err != nil {
			t.Errorf("fewer parts than allowed in lists of %T: %v", list, err)
		}
	}

	// A Value is as deep as its content, wherever it was read from, and no deeper.
	for _, inner := range []any{1, "s", []byte("b"), []any{}, []any{[]any{}}, make([]float64, 100), state.Date{Year: 2026, Month: 1, Day: 1}, 1i, state.Instance{Kind: state.KindSubclass, Type: "m.T", Value: []any{1}}} {
		alone := mustValue(t, inner)
		var list []state.Value
		must.Do(t, mustValue(t, []any{inner}).Decode(&list))
		for depth := range state.DefaultMaxDepth + 2 {
			_, want := state.NewValue(wrapped(alone, depth))
			got, err := state.NewValue(wrapped(list[0], depth))
			if (err == nil) != (want == nil) {
				t.Errorf("%T from a list, %d deep: %v, and alone %v", inner, depth, err, want)
			}
			if err == nil && depth >= state.DefaultMaxDepth-3 {
				if _, err := state.Parse(got.Bytes(), state.Bounds{}); err != nil {
					t.Errorf("%T %d deep was encoded, and is refused: %v", inner, depth, err)
				}
			}
		}
	}
}

func wrapped(v any, depth int) any {
	for range depth {
		v = []any{v}
	}
	return v
}

// numpy's empty texts have a dtype of no bytes, with the zero character that its tobytes
// returns all the same, or without.
func TestEmptyNumpyText(t *testing.T) {
	t.Parallel()
	for dtype, zero := range map[string]string{"<U0": "\x00\x00\x00\x00", ">U0": "\x00\x00\x00\x00", "<U": "\x00\x00\x00\x00", "|S0": "\x00", "|S": "\x00", "|V0": ""} {
		for _, data := range []string{"", zero} {
			v := mustValue(t, []any{state.Scalar{Dtype: dtype, Data: []byte(data)}, 1})
			parsed, err := state.Parse(v.Bytes(), state.Bounds{})
			if err != nil {
				t.Errorf("%s of %q: %v", dtype, data, err)
				continue
			}
			scalar := decoded(t, parsed).([]any)[0].(state.Scalar)
			x, err := scalar.Value()
			if text := fmt.Sprintf("%s", x); err != nil || text != "" {
				t.Errorf("%s of %q: %q, %v, want an empty text and no error", dtype, data, text, err)
			}
		}
		array := state.Array{Dtype: dtype, Shape: []int{2000}}
		if err := mustValue(t, array).Decode(new([]any)); err != nil {
			t.Errorf("2000 of %s: %v", dtype, err)
		}
	}
	for dtype, data := range map[string]string{"<U0": "\x00", "|S0": "a", "|V0": "\x00", "<U1": "", "|S1": ""} {
		if _, err := state.NewValue(state.Scalar{Dtype: dtype, Data: []byte(data)}); err == nil {
			t.Errorf("%s of %q is a value, want an error", dtype, data)
		}
	}
}

// A leaf is beside the document from exactly 64 KiB on, and only a leaf of such a size and of
// the size that the document says is taken from there.
func TestLeavesBesideTheDocument(t *testing.T) {
	t.Parallel()
	const size = 64 << 10
	for _, beside := range []int{size - 8, size, size + 8} {
		for _, leaf := range []any{make([]byte, beside), make([]float64, beside/8)} {
			doc, blobs := mustValue(t, leaf).Detached()
			if _, err := state.ParseDetached(doc, blobs, state.Bounds{}); err != nil || len(blobs) > 0 != (beside >= size) {
				t.Errorf("%T of %d bytes: got %d blobs, and error %v reading them", leaf, beside, len(blobs), err)
			}
		}
	}
	data := []byte(strings.Repeat("x", size))
	hash := state.Hash(sha256.Sum256(data))
	for text, want := range map[string]bool{hash.String(): true, strings.ToUpper(hash.String()): false, hash.String()[:62]: false, hash.String() + "00": false} {
		doc := document(fmt.Sprintf(`{"$":"bytes","base64":{"$":"blob","sha256":"%s","size":%d}}`, text, size))
		if _, err := state.ParseDetached(doc, state.Blobs{hash: data}, state.Bounds{}); (err == nil) != want {
			t.Errorf("the hash %s: got error %v, want it to be read: %v", text, err, want)
		}
	}
	for named, content := range map[int]int{size: size + 1, size + 1: size, size - 1: size - 1} {
		data := make([]byte, content)
		hash := state.Hash(sha256.Sum256(data))
		doc := document(fmt.Sprintf(`{"$":"bytes","base64":{"$":"blob","sha256":"%s","size":%d}}`, hash, named))
		if _, err := state.ParseDetached(doc, state.Blobs{hash: data}, state.Bounds{}); err == nil {
			t.Errorf("a leaf of %d bytes, of which the document says %d, was taken", content, named)
		}
	}
}
