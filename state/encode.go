package state

import (
	"encoding"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"strconv"
	"time"
)

const (
	documentStart = `{"v":1,"value":`
	documentEnd   = `}`
	// packFrom is the minimum length at which a list of floats is written as one block of 8-byte
	// words. For a block, Go and Python need a tenth of the time that text would take.
	packFrom = 16
	// trackFrom is the depth at which the encoder begins to record references, to find cycles. It does
	// not begin earlier, because most values are less deep and every cycle reaches this depth.
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

// Marshal returns the document of a value. The output is deterministic. Errors are
// *[UnsupportedTypeError], *[UnsupportedValueError], *[LimitError], or wrap an error
// of a [PythonMarshaler] or encoding.TextMarshaler.
func Marshal(v any) ([]byte, error) {
	e, err := marshal(v, false)
	return e.buf, err
}

// marshal encodes a value. With detached, large byte strings become blobs.
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
	if err := e.countable(); err != nil {
		return encoder{}, err
	}
	return e, nil
}

// countable returns an error for a value with more parts than [DefaultMaxNodes], because decoders
// refuse it by default. It counts the parts only of large documents, because a small document
// cannot have so many parts.
func (e *encoder) countable() error {
	const (
		leastNode  = 2 // bytes of the smallest part of a list, with its comma
		leastFloat = 8 // bytes of a float in a blob
	)
	if len(e.buf)/leastNode+e.beside/leastFloat <= DefaultMaxNodes {
		return nil
	}
	_, err := ParseDetached(e.buf, e.blobs, Bounds{})
	return err
}

// sizeHint estimates the size of the document, so that large byte strings are not copied when
// the buffer grows.
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

// encoder writes one value. The field frozen is greater than zero while the encoder writes a value
// that must be hashable in Python.
type encoder struct {
	buf   []byte
	depth int
	// deepest is the depth of the value so far.
	deepest int
	frozen  int
	seen    map[visit]struct{}
	// detached means that large byte strings are written to blobs.
	detached bool
	blobs    Blobs
	beside   int  // the number of bytes in blobs
	large    bool // the value exceeds the size limit and is incomplete
}

// room reports whether n more bytes may be added. If not, the caller neither copies
// nor hashes them.
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

// any encodes the value of an interface. It uses no reflection for common types.
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
		return e.bigInt(&n)
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
			return e.bigInt(new(big.Int).SetUint64(u))
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
		return e.bigInt(v.Interface().(*big.Int))
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
	// A chain of pointers can also be a cycle.
	leave, err := e.enter(v, 0)
	if err != nil {
		return err
	}
	defer leave()
	return e.value(v.Elem())
}

// custom encodes a value whose type chooses its own form.
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

// enter counts a level of nesting, and finds cycles among the references of the levels. The
// caller must call leave.
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

// unhashable returns an error for a kind whose values cannot be dict keys or items of a set in
// Python.
func (e *encoder) unhashable(kind Kind) error {
	if e.frozen == 0 {
		return nil
	}
	return &UnsupportedValueError{Reason: fmt.Sprintf("Python cannot have a %s as a key or in a set", kind)}
}

// refused returns the error for a value that its own type found invalid.
func refused(err error) error {
	if limit, ok := errors.AsType[*LimitError](err); ok {
		return limit
	}
	return &UnsupportedValueError{Reason: err.Error()}
}
