package state

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

const (
	documentStart = `{"v":1,"value":`
	documentEnd   = `}`
	// packFrom is the length from which a list of floats is written as one block
	// of 8-byte words, which takes a tenth of the time of text on both sides.
	packFrom = 16
	// trackFrom is the depth from which references are remembered to find cycles:
	// most values never get that deep, and a cycle always does.
	trackFrom = 64
)

var (
	timeType       = reflect.TypeFor[time.Time]()
	durationType   = reflect.TypeFor[time.Duration]()
	bigIntType     = reflect.TypeFor[big.Int]()
	dictType       = reflect.TypeFor[Dict]()
	tupleType      = reflect.TypeFor[Tuple]()
	setType        = reflect.TypeFor[Set]()
	frozenSetType  = reflect.TypeFor[FrozenSet]()
	valueType      = reflect.TypeFor[Value]()
	opaqueType     = reflect.TypeFor[Opaque]()
	emptyType      = reflect.TypeFor[struct{}]()
	marshalerType  = reflect.TypeFor[PythonMarshaler]()
	textMarshaler  = reflect.TypeFor[encoding.TextMarshaler]()
	float64Type    = reflect.TypeFor[float64]()
	stringType     = reflect.TypeFor[string]()
	intType        = reflect.TypeFor[int]()
	int64Type      = reflect.TypeFor[int64]()
	anySliceType   = reflect.TypeFor[[]any]()
	floatsType     = reflect.TypeFor[[]float64]()
	bigIntPtr      = reflect.PointerTo(bigIntType)
	bigRatType     = reflect.TypeFor[big.Rat]()
	bigRatPtr      = reflect.PointerTo(bigRatType)
	timedeltaType  = reflect.TypeFor[Timedelta]()
	hasPythonForms = map[reflect.Type]bool{timeType: true, valueType: true, opaqueType: true}
)

// Marshal returns the document of a value. The output is deterministic. Errors
// are *[UnsupportedTypeError], *[UnsupportedValueError], *[LimitError], or wrap
// what a [PythonMarshaler] or encoding.TextMarshaler returned.
func Marshal(v any) ([]byte, error) {
	e, err := marshal(v, false)
	return e.buf, err
}

// marshal encodes a value, detached from its blobs or in one piece.
func marshal(v any, detached bool) (encoder, error) {
	e := encoder{detached: detached}
	size := 0
	if !detached {
		size = min(sizeHint(v), DefaultMaxBytes)
	}
	e.buf = append(make([]byte, 0, size), documentStart...)
	if err := e.any(v); err != nil {
		return encoder{}, err
	}
	e.text(documentEnd)
	if !e.room(0) {
		return encoder{}, errLarge()
	}
	return e, nil
}

// sizeHint estimates the size, so that large leaves are not copied as the
// buffer grows.
func sizeHint(v any) int {
	const frame = 128
	switch v := v.(type) {
	case string:
		return len(v) + len(v)/64 + frame
	case []byte:
		return base64.StdEncoding.EncodedLen(len(v)) + frame
	case []float64:
		return base64.StdEncoding.EncodedLen(8*len(v)) + frame
	case []int:
		return 8*len(v) + frame
	case []string:
		size := frame
		for _, s := range v {
			size += len(s) + len(s)/32 + 3
		}
		return size
	}
	return frame
}

// encoder writes one value. frozen is above zero inside values that Python must
// be able to hash.
type encoder struct {
	buf   []byte
	depth int
	// deepest is the depth of the value.
	deepest int
	frozen  int
	seen    map[visit]struct{}
	// detached means that large leaves are written to blobs.
	detached bool
	blobs    Blobs
	beside   int  // bytes of the leaves in blobs
	large    bool // the value is over the size limit: not all of it is there
}

// room reports whether n more bytes may be added. When they may not, they are
// neither copied nor hashed.
func (e *encoder) room(n int) bool {
	e.large = e.large || len(e.buf)+e.beside+n > DefaultMaxBytes
	return !e.large
}

func errLarge() error { return &LimitError{Limit: "MaxBytes", Max: DefaultMaxBytes} }

type visit struct {
	pointer uintptr
	length  int
	typ     reflect.Type
}

// any encodes the value of an interface; the everyday types need no reflection.
func (e *encoder) any(v any) error {
	switch v := v.(type) {
	case nil:
		e.text("null")
	case bool:
		e.buf = strconv.AppendBool(e.buf, v)
	case int:
		e.buf = strconv.AppendInt(e.buf, int64(v), 10)
	case int64:
		e.buf = strconv.AppendInt(e.buf, v, 10)
	case float64:
		e.float(v)
	case string:
		return e.string(v)
	case []byte:
		return e.bytes(v)
	default:
		return e.value(reflect.ValueOf(v))
	}
	return nil
}

func (e *encoder) text(s string) { e.buf = append(e.buf, s...) }

func (e *encoder) value(v reflect.Value) error {
	t := v.Type()
	switch t {
	case timeType:
		return e.time(v.Interface().(time.Time))
	case durationType:
		return e.timedelta(TimedeltaOf(time.Duration(v.Int())))
	case bigIntType:
		n := v.Interface().(big.Int)
		e.bigInt(&n)
		return nil
	case bigRatType:
		n := v.Interface().(big.Rat)
		return e.rat(&n)
	case timedeltaType:
		return e.timedelta(v.Interface().(Timedelta))
	case dictType:
		return e.dict(v)
	case valueType:
		return e.embedded(v.Interface().(Value))
	case opaqueType:
		return &UnsupportedTypeError{Type: t}
	}
	if t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface {
		return e.reference(v)
	}
	if formTypes[t] {
		kind, payload, err := v.Interface().(form).form()
		if err != nil {
			return refused(err)
		}
		return e.form(kind, payload)
	}
	if t.NumMethod() > 0 || v.CanAddr() && t.Name() != "" {
		if done, err := e.custom(v); done || err != nil {
			return err
		}
	}
	switch t.Kind() {
	case reflect.Bool:
		e.buf = strconv.AppendBool(e.buf, v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		e.buf = strconv.AppendInt(e.buf, v.Int(), 10)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if u := v.Uint(); u <= math.MaxInt64 {
			e.buf = strconv.AppendUint(e.buf, u, 10)
		} else {
			e.bigInt(new(big.Int).SetUint64(u))
		}
	case reflect.Float32, reflect.Float64:
		e.float(v.Float())
	case reflect.Complex64, reflect.Complex128:
		c := v.Complex()
		return e.form(KindComplex, []float64{real(c), imag(c)})
	case reflect.String:
		return e.string(v.String())
	case reflect.Slice:
		return e.slice(v)
	case reflect.Array:
		return e.array(v)
	case reflect.Map:
		return e.mapping(v)
	case reflect.Struct:
		return e.structure(v)
	default:
		return &UnsupportedTypeError{Type: t}
	}
	return nil
}

func (e *encoder) reference(v reflect.Value) error {
	if v.IsNil() {
		e.text("null")
		return nil
	}
	if v.Type() == bigIntPtr {
		e.bigInt(v.Interface().(*big.Int))
		return nil
	}
	if v.Type() == bigRatPtr {
		return e.rat(v.Interface().(*big.Rat))
	}
	if v.Kind() == reflect.Interface {
		return e.value(v.Elem())
	}
	if !hasPythonForms[v.Type().Elem()] {
		if done, err := e.custom(v); done || err != nil {
			return err
		}
	}
	// A chain of pointers alone can also be a cycle.
	leave, err := e.enter(v, 0)
	if err != nil {
		return err
	}
	defer leave()
	return e.value(v.Elem())
}

// custom encodes types that choose their own form.
func (e *encoder) custom(v reflect.Value) (done bool, err error) {
	t := v.Type()
	if !t.Implements(marshalerType) && !t.Implements(textMarshaler) {
		if t.Kind() == reflect.Pointer || !v.CanAddr() {
			return false, nil
		}
		if v = v.Addr(); !v.Type().Implements(marshalerType) && !v.Type().Implements(textMarshaler) {
			return false, nil
		}
	}
	if !v.CanInterface() {
		return false, nil
	}
	switch m := v.Interface().(type) {
	case PythonMarshaler:
		x, err := m.MarshalPython()
		if err != nil {
			return true, fmt.Errorf("state: MarshalPython of %s: %w", t, err)
		}
		leave, err := e.enter(reflect.Value{}, 0)
		if err != nil {
			return true, err
		}
		defer leave()
		return true, e.any(x)
	case encoding.TextMarshaler:
		text, err := m.MarshalText()
		if err != nil {
			return true, fmt.Errorf("state: MarshalText of %s: %w", t, err)
		}
		return true, e.string(string(text))
	}
	return false, nil
}

// enter counts a level, and finds cycles among the references of the levels.
func (e *encoder) enter(v reflect.Value, length int) (leave func(), err error) {
	if e.depth++; e.depth > DefaultMaxDepth {
		return nil, &LimitError{Limit: "MaxDepth", Max: DefaultMaxDepth}
	}
	e.deepest = max(e.deepest, e.depth)
	if e.depth < trackFrom || !v.IsValid() {
		return func() { e.depth-- }, nil
	}
	at := visit{v.Pointer(), length, v.Type()}
	if _, ok := e.seen[at]; ok {
		return nil, &UnsupportedValueError{Reason: fmt.Sprintf("a cycle through %s", v.Type())}
	}
	if e.seen == nil {
		e.seen = map[visit]struct{}{}
	}
	e.seen[at] = struct{}{}
	return func() { e.depth--; delete(e.seen, at) }, nil
}

// unhashable refuses kinds that Python cannot have as a key or in a set.
func (e *encoder) unhashable(kind Kind) error {
	if e.frozen == 0 {
		return nil
	}
	return &UnsupportedValueError{Reason: fmt.Sprintf("Python cannot have a %s as a key or in a set", kind)}
}

func (e *encoder) float(f float64) {
	switch {
	case math.IsNaN(f):
		e.text(`{"$":"float","text":"nan"}`)
	case math.IsInf(f, 1):
		e.text(`{"$":"float","text":"inf"}`)
	case math.IsInf(f, -1):
		e.text(`{"$":"float","text":"-inf"}`)
	default:
		e.buf = appendFloat(e.buf, f)
	}
}

func (e *encoder) bigInt(n *big.Int) {
	if n.IsInt64() {
		e.buf = strconv.AppendInt(e.buf, n.Int64(), 10)
		return
	}
	e.text(`{"$":"int","hex":"`)
	e.buf = n.Append(e.buf, 16)
	e.text(`"}`)
}

func (e *encoder) string(s string) error {
	switch {
	case !e.room(len(s)):
		return errLarge()
	case utf8.ValidString(s):
		e.buf = appendString(e.buf, s)
	case isWTF8(s):
		e.text(`{"$":"str","base64":`)
		e.buf = appendBase64(e.buf, []byte(s))
		e.text(`}`)
	default:
		return &UnsupportedValueError{Reason: "a string that is not UTF-8: send it as []byte"}
	}
	return nil
}

func (e *encoder) bytes(b []byte) error {
	if !e.room(len(b)) {
		return errLarge()
	}
	e.text(`{"$":"bytes","base64":`)
	if e.detached && len(b) >= blobFrom {
		b = bytes.Clone(b)
	}
	e.leaf(b)
	e.text(`}`)
	return nil
}

func (e *encoder) time(t time.Time) error {
	if year := t.Year(); year < 1 || year > 9999 {
		return &UnsupportedValueError{Reason: fmt.Sprintf("a time in year %d: Python has the years 1 to 9999", year)}
	}
	e.text(`{"$":"datetime","iso":"`)
	e.buf = t.AppendFormat(e.buf, isoLayout)
	e.text(`"`)
	if t.Location() != Naive {
		name, offset := zone(t)
		if offset <= -secondsPerDay || offset >= secondsPerDay {
			return &UnsupportedValueError{Reason: fmt.Sprintf("a time %d seconds from UTC: Python allows less than a day", offset)}
		}
		e.text(`,"offset":`)
		e.buf = strconv.AppendInt(e.buf, int64(offset), 10)
		if name != "" {
			e.text(`,"zone":`)
			e.buf = appendString(e.buf, name)
		}
	}
	e.text(`}`)
	return nil
}

func (e *encoder) timedelta(d Timedelta) error {
	if err := d.check(); err != nil {
		return refused(err)
	}
	e.text(`{"$":"timedelta","days":`)
	e.buf = strconv.AppendInt(e.buf, d.Days, 10)
	e.text(`,"seconds":`)
	e.buf = strconv.AppendInt(e.buf, d.Seconds, 10)
	e.text(`,"microseconds":`)
	e.buf = strconv.AppendInt(e.buf, d.Microseconds, 10)
	e.text(`}`)
	return nil
}

func (e *encoder) rat(n *big.Rat) error { return e.form(KindFraction, []*big.Int{n.Num(), n.Denom()}) }

// refused reports a value that its own type found invalid.
func refused(err error) error {
	if limit, ok := errors.AsType[*LimitError](err); ok {
		return limit
	}
	return &UnsupportedValueError{Reason: err.Error()}
}

func (e *encoder) slice(v reflect.Value) error {
	switch v.Type() {
	case tupleType:
		return e.tagged(KindTuple, v)
	case setType:
		return e.set(KindSet, elements(v))
	case frozenSetType:
		return e.set(KindFrozenSet, elements(v))
	}
	if v.Type().Elem().Kind() == reflect.Uint8 {
		return e.bytes(v.Bytes())
	}
	if err := e.unhashable(KindList); err != nil {
		return err
	}
	leave, err := e.enter(v, v.Len())
	if err != nil {
		return err
	}
	defer leave()
	if done, err := e.packed(v); done || err != nil {
		return err
	}
	return e.items(v)
}

func (e *encoder) array(v reflect.Value) error {
	if v.Type().Elem().Kind() != reflect.Uint8 {
		return e.tagged(KindTuple, v)
	}
	b := make([]byte, v.Len())
	for i := range b {
		b[i] = byte(v.Index(i).Uint())
	}
	return e.bytes(b)
}

func elements(v reflect.Value) []reflect.Value {
	items := make([]reflect.Value, v.Len())
	for i := range items {
		items[i] = v.Index(i)
	}
	return items
}

func (e *encoder) tagged(kind Kind, v reflect.Value) error {
	reference := reflect.Value{}
	if v.Kind() == reflect.Slice {
		reference = v
	}
	leave, err := e.enter(reference, v.Len())
	if err != nil {
		return err
	}
	defer leave()
	e.text(`{"$":"`)
	e.text(string(kind))
	e.text(`","items":`)
	if err := e.items(v); err != nil {
		return err
	}
	e.text(`}`)
	return nil
}

func (e *encoder) items(v reflect.Value) error {
	e.text(`[`)
	element, boxed := v.Type().Elem(), v.Type().Elem().Kind() == reflect.Interface
	for i := range v.Len() {
		if i > 0 {
			e.text(`,`)
		}
		var err error
		switch x := v.Index(i); {
		case element == stringType:
			err = e.string(x.String())
		case element == intType || element == int64Type:
			e.buf = strconv.AppendInt(e.buf, x.Int(), 10)
		case boxed:
			err = e.any(x.Interface())
		default:
			err = e.value(x)
		}
		if err == nil && !e.room(0) {
			err = errLarge()
		}
		if err != nil {
			return within(err, index(i))
		}
	}
	e.text(`]`)
	return nil
}

// packed writes a long list that has only floats as one block.
func (e *encoder) packed(v reflect.Value) (done bool, err error) {
	floats := floatsOf(v)
	switch {
	case len(floats) < packFrom:
		return false, nil
	case !e.room(8 * len(floats)):
		return false, errLarge()
	}
	e.text(`{"$":"list","float64":`)
	if e.detached && 8*len(floats) >= blobFrom {
		e.leaf(raw(floats))
		e.text(`}`)
		return true, nil
	}
	e.text(`"`)
	e.buf = slices.Grow(e.buf, base64.StdEncoding.EncodedLen(8*len(floats))+2)
	// Three words at a time are 24 bytes, which base64 divides evenly.
	for block := range slices.Chunk(floats, 3*64) {
		e.buf = base64.StdEncoding.AppendEncode(e.buf, raw(block))
	}
	e.text(`"}`)
	return true, nil
}

// floatsOf returns the elements of a list that has only floats, and nil for any
// other list.
func floatsOf(v reflect.Value) []float64 {
	switch element := v.Type().Elem(); {
	case element == float64Type:
		return v.Convert(floatsType).Interface().([]float64)
	case (element.Kind() == reflect.Float32 || element.Kind() == reflect.Float64) && reflect.PointerTo(element).NumMethod() == 0:
		floats := make([]float64, v.Len())
		for i := range floats {
			floats[i] = v.Index(i).Float()
		}
		return floats
	case v.Type() == anySliceType:
		items := v.Interface().([]any)
		if slices.ContainsFunc(items, func(x any) bool { _, ok := x.(float64); return !ok }) {
			return nil
		}
		floats := make([]float64, len(items))
		for i, x := range items {
			floats[i] = x.(float64)
		}
		return floats
	}
	return nil
}

// set writes items sorted by their encoding, because sets have no order.
func (e *encoder) set(kind Kind, items []reflect.Value) error {
	if kind == KindSet {
		if err := e.unhashable(kind); err != nil {
			return err
		}
	}
	leave, err := e.enter(reflect.Value{}, 0)
	if err != nil {
		return err
	}
	defer leave()
	encoded := make([][]byte, len(items))
	for i, item := range items {
		if encoded[i], err = e.hashable(item); err != nil {
			return within(err, index(i))
		}
	}
	slices.SortFunc(encoded, bytes.Compare)
	e.text(`{"$":"`)
	e.text(string(kind))
	e.text(`","items":[`)
	for i, item := range encoded {
		if i > 0 {
			if bytes.Equal(item, encoded[i-1]) {
				return &UnsupportedValueError{Reason: fmt.Sprintf("a set that has %.64s twice", item)}
			}
			e.text(`,`)
		}
		e.buf = append(e.buf, item...)
	}
	e.text(`]}`)
	return nil
}

// hashable encodes a key or an item of a set, separately from the output.
func (e *encoder) hashable(v reflect.Value) ([]byte, error) {
	start := len(e.buf)
	e.frozen++
	err := e.value(v)
	e.frozen--
	encoded := bytes.Clone(e.buf[start:])
	e.buf = e.buf[:start]
	return encoded, err
}

// entry is a key, encoded, and its value.
type entry struct {
	key   []byte
	order reflect.Value
	value reflect.Value
}

func (e *encoder) mapping(v reflect.Value) error {
	if v.Type().Elem() == emptyType {
		return e.set(KindSet, v.MapKeys())
	}
	if err := e.unhashable(KindDict); err != nil {
		return err
	}
	leave, err := e.enter(v, 0)
	if err != nil {
		return err
	}
	defer leave()
	entries := make([]entry, 0, v.Len())
	for it := v.MapRange(); it.Next(); {
		k := it.Key()
		encoded, err := e.hashable(k)
		if err != nil {
			return within(err, "[key]")
		}
		entries = append(entries, entry{encoded, k, it.Value()})
	}
	slices.SortFunc(entries, entryOrder(v.Type().Key()))
	for i := range entries {
		if i > 0 && bytes.Equal(entries[i].key, entries[i-1].key) {
			return &UnsupportedValueError{Reason: fmt.Sprintf("a map that has the key %.64s twice", entries[i].key)}
		}
	}
	return e.entries(entries)
}

// entryOrder sorts numbers by value and everything else by its encoding.
func entryOrder(t reflect.Type) func(a, b entry) int {
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return func(a, b entry) int { return cmp.Compare(a.order.Int(), b.order.Int()) }
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return func(a, b entry) int { return cmp.Compare(a.order.Uint(), b.order.Uint()) }
	}
	return func(a, b entry) int { return bytes.Compare(a.key, b.key) }
}

func (e *encoder) dict(v reflect.Value) error {
	if err := e.unhashable(KindDict); err != nil {
		return err
	}
	leave, err := e.enter(v, v.Len())
	if err != nil {
		return err
	}
	defer leave()
	entries := make([]entry, v.Len())
	seen := make(map[string]struct{}, v.Len())
	for i := range entries {
		item := v.Index(i)
		entries[i].value = item.Field(1)
		if entries[i].key, err = e.hashable(item.Field(0)); err != nil {
			return within(err, index(i)+".Key")
		}
		if _, ok := seen[string(entries[i].key)]; ok {
			return &UnsupportedValueError{Reason: fmt.Sprintf("a Dict that has the key %.64s twice", entries[i].key)}
		}
		seen[string(entries[i].key)] = struct{}{}
	}
	return e.entries(entries)
}

// dollar is the one string key that would make a dict look like the envelope.
const dollar = `"$"`

func (e *encoder) entries(entries []entry) error {
	object := !slices.ContainsFunc(entries, func(x entry) bool {
		return len(x.key) == 0 || x.key[0] != '"' || string(x.key) == dollar
	})
	open, between, next, end := `{"$":"dict","items":[[`, `,`, `],[`, `]]}`
	switch {
	case object:
		open, between, next, end = `{`, `:`, `,`, `}`
	case len(entries) == 0:
		open, end = `{`, `}`
	}
	e.text(open)
	for i, x := range entries {
		if i > 0 {
			e.text(next)
		}
		e.buf = append(e.buf, x.key...)
		e.text(between)
		if err := e.element(x.value); err != nil {
			return within(err, keyStep(x.key))
		}
	}
	e.text(end)
	return nil
}

// element encodes a value that may be in an interface.
func (e *encoder) element(v reflect.Value) error {
	if v.Kind() == reflect.Interface && v.CanInterface() {
		return e.any(v.Interface())
	}
	return e.value(v)
}

func (e *encoder) structure(v reflect.Value) error {
	if err := e.unhashable(KindDict); err != nil {
		return err
	}
	f := fieldsOf(v.Type())
	if f.err != "" {
		return &UnsupportedValueError{Reason: f.err}
	}
	leave, err := e.enter(reflect.Value{}, 0)
	if err != nil {
		return err
	}
	defer leave()
	entries := make([]entry, 0, len(f.list))
	for i := range f.list {
		x, err := v.FieldByIndexErr(f.list[i].index)
		if err != nil || f.list[i].omitEmpty && x.IsZero() {
			continue // in an embedded nil pointer, or left out
		}
		entries = append(entries, entry{key: f.list[i].key, value: x})
	}
	return e.entries(entries)
}

func (e *encoder) embedded(v Value) error {
	if v.opaque {
		return &UnsupportedValueError{Reason: "a value that exists only in its sandbox: " + v.describe()}
	}
	switch v.kind {
	case KindList, KindDict, KindSet, KindByteArray:
		if err := e.unhashable(v.kind); err != nil {
			return err
		}
	}
	if e.depth+v.depth > DefaultMaxDepth {
		return &LimitError{Limit: "MaxDepth", Max: DefaultMaxDepth}
	}
	if v.doc == nil {
		e.text("null")
		return nil
	}
	if !e.room(v.Size()) {
		return errLarge()
	}
	e.deepest = max(e.deepest, e.depth+v.depth)
	if !e.detached {
		doc := v.Bytes()
		e.buf = append(e.buf, doc[len(documentStart):len(doc)-len(documentEnd)]...)
		return nil
	}
	e.buf = append(e.buf, v.body()...)
	if e.blobs == nil && len(v.blobs) > 0 {
		e.blobs = Blobs{}
	}
	maps.Copy(e.blobs, v.blobs)
	e.beside += v.blobs.size()
	return nil
}
