package state_test

import (
	"bytes"
	"fmt"
	"math/big"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/state"
)

// maker makes Go values of all kinds that have a Python form.
type maker struct{ *rand.Rand }

func newMaker(seed uint64) maker { return maker{rand.New(rand.NewPCG(seed, 0))} } //nolint:gosec // a test's values are to be the same again

// blobBound is the size from which the bytes of a value are stored beside its document.
const blobBound = 1 << 16

// size returns a length of a leaf, often one beside a bound.
func (m maker) size() int {
	if m.IntN(8) > 0 {
		return m.IntN(20)
	}
	return blobBound + m.IntN(3) - 1
}

func (m maker) bytes() []byte {
	b := make([]byte, m.size())
	for i := range b {
		b[i] = byte(m.Uint32())
	}
	return b
}

func (m maker) floats() []float64 {
	f := make([]float64, (m.size()+7)/8*m.IntN(2)+m.IntN(20))
	for i := range f {
		f[i] = m.NormFloat64()
	}
	return f
}

func (m maker) text() string {
	const letters = "ab\"\\$é\u2028😀\x00"
	return strings.Repeat(string([]rune(letters)[m.IntN(9)]), m.size()/3)
}

func (m maker) array() state.Array {
	a, err := state.ArrayOf(m.floats())
	if err != nil {
		panic(err)
	}
	return a
}

func (m maker) time() time.Time {
	t := time.Unix(m.Int64N(1<<33), m.Int64N(1e6)*1000).UTC()
	return []time.Time{t, t.In(state.Naive), t.In(time.FixedZone("", 3600))}[m.IntN(3)]
}

// scalar returns a value that Python can have as a key.
func (m maker) scalar() any {
	all := []func() any{
		func() any { return m.IntN(2) == 0 }, func() any { return m.Int() }, func() any { return int8(m.Int()) }, func() any { return uint16(m.Int()) },
		func() any { return m.Uint64() | 1<<63 }, func() any { return m.NormFloat64() }, func() any { return float32(m.NormFloat64()) }, func() any { return complex64(complex(m.NormFloat64(), 1)) },
		func() any { return new(big.Int).Lsh(big.NewInt(m.Int64()), uint(m.IntN(99))) }, func() any { return big.NewRat(m.Int64(), 1+m.Int64N(99)) },
		func() any { return state.Decimal(fmt.Sprintf("%d.5", m.Int32())) }, func() any { return m.text() }, func() any { return m.bytes() }, func() any { return [3]byte{1, byte(m.Int()), 3} },
		func() any { return m.time() }, func() any { return time.Duration(m.Int64N(1<<40)) * 1000 }, func() any { return state.Timedelta{Days: m.Int64N(1e9), Seconds: 5} },
		func() any { return state.Date{Year: 1 + m.IntN(9999), Month: 2, Day: 3} }, func() any { return state.TimeOfDay{Hour: m.IntN(24), Zone: "UTC"} },
		func() any { return state.UUID{byte(m.Int())} }, func() any { return state.Path{Path: "/" + strings.Repeat("a", m.IntN(9))} }, func() any { return state.Range{Start: m.Int64N(9), Stop: 99, Step: 2} },
		func() any { return state.Ellipsis }, func() any { return state.NaT }, func() any { return state.Scalar{Dtype: "<i2", Data: []byte{byte(m.Int()), 1}} },
		func() any { return state.Instance{Kind: state.KindEnum, Type: "m.E.A", Value: m.bytes()} },
	}
	return all[m.IntN(len(all))]()
}

// record has its fields in the order of their keys, which a map of them has.
type record struct {
	Any    any            `py:"any"`
	Data   []byte         `py:"data"`
	Fixed  [2]*time.Time  `py:"fixed"`
	Floats []float64      `py:"floats"`
	Map    map[string]any `py:"map"`
	Number *big.Int       `py:"number"`
	Value  state.Value    `py:"value"`
}

// value returns a value with at most this many levels of containers.
func (m maker) value(depth int) any {
	if depth == 0 {
		return m.scalar()
	}
	inner := func() any { return m.value(depth - 1) }
	items := func() []any {
		out := make([]any, m.IntN(4))
		for i := range out {
			out[i] = inner()
		}
		return out
	}
	n, f, when := big.NewInt(m.Int64()), m.floats(), m.time()
	all := []func() any{
		m.scalar, func() any { return celsius(m.NormFloat64()) }, func() any { return items() }, func() any { return state.Tuple(items()) }, func() any { return [2]any{inner(), inner()} }, func() any { return map[string]any{"a": inner(), "$": inner()} },
		func() any { return state.Dict{{m.scalar(), inner()}, {state.Tuple{m.scalar()}, inner()}} }, func() any { return map[int]any{m.Int(): inner(), 7: inner()} },
		func() any { return state.Set{m.scalar()} }, func() any { return state.FrozenSet{m.scalar()} }, func() any { return map[string]struct{}{m.text(): {}} },
		func() any { return f }, func() any { return []int{m.Int(), 1} }, func() any { return []string{m.text(), "a"} }, func() any { return [][]byte{m.bytes(), m.bytes()} }, func() any { return []*big.Int{n, n} },
		func() any { return m.array() }, func() any { return state.Series{Column: mustColumn("s", f)} }, func() any { return state.Index{Column: mustColumn(nil, f)} },
		func() any { return state.Table{Columns: []state.Column{mustColumn("a", f), mustColumn("b", f)}} }, func() any { return state.Deque{Items: items()} }, func() any { return state.Slice{Start: inner(), Stop: 1} },
		func() any { return state.Array{Dtype: "|O", Shape: []int{1}, Objects: []any{inner()}} }, func() any { return state.Timestamp{Time: when.In(state.Naive), Unit: "us"} },
		func() any {
			return state.Image{Mode: "I;16", Width: 4, Height: 1, Raw: slices.Repeat([]byte{byte(m.Int())}, 8)}
		},
		func() any { return state.Instance{Kind: state.KindSubclass, Type: "m.L", Value: items()} },
		func() any {
			v, err := state.NewValue(inner())
			if err != nil {
				return nil
			}
			return record{Data: m.bytes(), Floats: f, Number: n, Fixed: [2]*time.Time{&when, nil}, Value: v, Any: inner(), Map: map[string]any{"a": v}}
		},
	}
	return all[m.IntN(len(all))]()
}

// TestValuesOfAllKinds checks the properties of each value that has a Python form.
func TestValuesOfAllKinds(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		checkValue(t, seed, int(seed%4))
	}
}

// FuzzValuesOfAllKinds does the same with the values of other seeds.
func FuzzValuesOfAllKinds(f *testing.F) {
	f.Add(uint64(1), uint8(0))
	f.Fuzz(func(t *testing.T, seed uint64, depth uint8) { checkValue(t, seed, int(depth%4)) })
}

// checked is a generated value and its document.
type checked struct {
	seed  uint64
	depth int
	given any
	doc   []byte
}

// made makes the value anew.
func (c checked) made() any { return newMaker(c.seed).value(c.depth) }

// same checks that another way to encode the value gives the same document.
func (c checked) same(t *testing.T, how string, got []byte, err error) {
	t.Helper()
	if err != nil || !bytes.Equal(got, c.doc) {
		t.Errorf("seed %d, depth %d: %T %s: %v, %.200s, want %.200s", c.seed, c.depth, c.given, how, err, got, c.doc)
	}
}

func checkValue(t *testing.T, seed uint64, depth int) {
	t.Helper()
	c := checked{seed: seed, depth: depth}
	c.given = c.made()
	doc, err := state.Marshal(c.given)
	if err != nil {
		t.Fatalf("%d, %d: %T: %v", seed, depth, c.given, err)
	}
	c.doc = doc
	// Detached from its blobs it is the same document, and shares nothing with the
	// caller's value.
	value := mustValue(t, c.given)
	c.same(t, "in two parts", value.Bytes(), nil)
	overwrite(reflect.ValueOf(c.given))
	c.same(t, "whose source was overwritten", value.Bytes(), nil)
	c.behindPointers(t)
	c.decoded(t, value)

	// The limits are exact.
	size := value.Size()
	detached, blobs := value.Detached()
	if _, err := state.ParseDetached(detached, blobs, state.Bounds{MaxBytes: int64(size)}); err != nil {
		t.Errorf("seed %d, depth %d: %d bytes: %v", seed, depth, size, err)
	}
	if _, err := state.ParseDetached(detached, blobs, state.Bounds{MaxBytes: int64(size - 1)}); !isLimit(err, "MaxBytes") {
		t.Errorf("seed %d, depth %d: %d bytes with a limit of one less: %v", seed, depth, size, err)
	}
}

// behindPointers checks that pointers change nothing, and that parts which are shared are no
// cycle, wherever they are.
func (c checked) behindPointers(t *testing.T) {
	t.Helper()
	p := reflect.New(reflect.TypeOf(c.given))
	p.Elem().Set(reflect.ValueOf(c.made()))
	pp := reflect.New(p.Type())
	pp.Elem().Set(p)
	box := any(p.Interface())
	for _, pointer := range []any{p.Interface(), pp.Interface(), &box} {
		got, err := state.Marshal(pointer)
		c.same(t, fmt.Sprintf("as a %T", pointer), got, err)
	}
	list := reflect.Append(reflect.MakeSlice(reflect.SliceOf(p.Type()), 0, 1), p)
	mapping := reflect.MakeMap(reflect.MapOf(reflect.TypeFor[string](), p.Type()))
	mapping.SetMapIndex(reflect.ValueOf("k"), p)
	for _, pair := range [][2]any{
		{[]any{c.made()}, list.Interface()}, {map[string]any{"k": c.made()}, mapping.Interface()}, {map[string]any{"P": c.made()}, struct{ P any }{p.Interface()}},
	} {
		want, err := state.Marshal(pair[0])
		must.Do(t, err)
		if got, err := state.Marshal(pair[1]); err != nil || !bytes.Equal(got, want) {
			t.Errorf("seed %d, depth %d: %T: %.200s, %v, want %.200s", c.seed, c.depth, pair[1], got, err, want)
		}
	}
	shared := p.Interface()
	for _, deep := range []int{0, 63, 100} { // references are remembered from 64 on
		if _, err := state.Marshal(wrapped([]any{shared, shared, map[string]any{"a": shared, "b": []any{shared, list.Interface(), list.Interface()}}}, deep)); err != nil {
			t.Errorf("seed %d, depth %d: %T shared %d deep: %v", c.seed, c.depth, c.given, deep, err)
		}
	}
}

// decoded checks that every kind of target gets bytes of its own.
func (c checked) decoded(t *testing.T, value state.Value) {
	t.Helper()
	text := bytes.Clone(c.doc)
	parsed, err := state.Parse(text, state.Bounds{})
	must.Do(t, err)
	for _, from := range []state.Value{value, parsed} {
		for _, target := range targets(c.given) {
			if err := from.Decode(target.Interface()); err != nil {
				t.Errorf("seed %d, depth %d: into %s: %v", c.seed, c.depth, target.Type(), err)
				continue
			}
			again, err := state.Marshal(target.Interface())
			c.same(t, "through "+target.Type().String(), again, err)
			overwrite(target.Elem())
			c.same(t, "after "+target.Type().String()+" was overwritten", from.Bytes(), nil)
		}
	}
	whole := reflect.New(reflect.TypeOf(c.given))
	if err := state.Unmarshal(text, whole.Interface()); err != nil {
		t.Errorf("seed %d, depth %d: %v", c.seed, c.depth, err)
	}
	before, err := state.Marshal(whole.Interface())
	must.Do(t, err)
	for i := range text {
		text[i] = 0
	}
	if after, err := state.Marshal(whole.Interface()); err != nil || !bytes.Equal(before, after) {
		t.Errorf("seed %d, depth %d: %T changed with its document: %v", c.seed, c.depth, c.given, err)
	}
}

// targets returns pointers to a value of each kind that can take one like given.
func targets(given any) []reflect.Value {
	typed := reflect.New(reflect.TypeOf(given))
	return []reflect.Value{
		reflect.ValueOf(new(any)), reflect.ValueOf(new(*any)), typed, reflect.New(typed.Type()), reflect.ValueOf(new(state.Value)), reflect.ValueOf(new(*state.Value)),
		reflect.ValueOf(new(kept)), reflect.ValueOf(new(*kept)),
	}
}

// overwrite changes all numbers, texts and bytes that can be reached from a value.
func overwrite(v reflect.Value) {
	if v.CanInterface() {
		switch x := v.Interface().(type) {
		case *big.Int:
			if x != nil {
				x.Add(x, big.NewInt(1))
			}
			return
		case *big.Rat:
			if x != nil {
				x.Add(x, big.NewRat(1, 7))
			}
			return
		case state.Value, time.Time: // no caller can write to these
			return
		}
	}
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		if !v.IsNil() {
			overwrite(v.Elem())
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			overwrite(v.Index(i))
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			overwrite(it.Key())
			overwrite(it.Value())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			overwrite(v.Field(i))
		}
	default:
		if !v.CanSet() {
			return
		}
		switch {
		case v.CanInt():
			v.SetInt(v.Int() ^ 1)
		case v.CanUint():
			v.SetUint(v.Uint() ^ 1)
		case v.CanFloat():
			v.SetFloat(v.Float() + 1)
		case v.Kind() == reflect.String:
			v.SetString(v.String() + "x")
		}
	}
}
