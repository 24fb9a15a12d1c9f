package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
)

// Array is a numpy ndarray. Its buffer is transferred as a whole, without work for each
// element. [ArrayOf] converts a slice to an Array, and [Elements] converts it back.
type Array struct {
	// Dtype is numpy's name of the element type: "<f8", ">i4", "|b1", "<U5", "<M8[ns]". For a
	// structured dtype it is numpy's descr as JSON. For objects it is "|O".
	Dtype string
	// Shape contains the length of each dimension. An empty Shape means an array without
	// dimensions, with one element.
	Shape []int
	// Fortran reports whether the first dimension varies fastest in Data.
	Fortran bool
	// Data contains the elements in the byte order of Dtype.
	Data []byte
	// Objects contains the elements of a "|O" array, whose Data is empty.
	Objects []any
}

// Scalar is a numpy scalar, with its dtype. It can be decoded into a Go number, bool, string,
// time.Time or time.Duration if that type can represent the scalar.
type Scalar struct {
	Dtype string
	Data  []byte
}

// Number lists the element types of [ArrayOf].
type Number interface {
	bool | int | int8 | int16 | int32 | int64 | uint | uint8 | uint16 | uint32 | uint64 | float32 | float64 | complex64 | complex128
}

// ArrayOf copies a slice into an array of the given shape. Without a shape the array has one
// dimension, and its length is that of the slice.
func ArrayOf[T Number](data []T, shape ...int) (Array, error) {
	if shape == nil {
		shape = []int{len(data)}
	}
	n, err := elementCount(shape, len(data))
	if err != nil || n != len(data) {
		return Array{}, fmt.Errorf("state: an array of the shape %v does not have %d elements", shape, len(data))
	}
	return Array{Dtype: numberDtype[T](), Shape: shape, Data: raw(data)}, nil
}

func numberDtype[T Number]() string {
	t := reflect.TypeFor[T]()
	order, size := "<", int(t.Size())
	if size == 1 {
		order = "|"
	}
	kind := "b"
	switch {
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Int64:
		kind = "i"
	case t.Kind() >= reflect.Uint && t.Kind() <= reflect.Uint64:
		kind = "u"
	case t.Kind() == reflect.Float32 || t.Kind() == reflect.Float64:
		kind = "f"
	case t.Kind() == reflect.Complex64 || t.Kind() == reflect.Complex128:
		kind = "c"
	}
	return fmt.Sprintf("%s%s%d", order, kind, size)
}

// raw returns numbers as bytes, least significant first.
func raw[T Number](data []T) []byte {
	var x any = data
	switch data := any(data).(type) {
	case []uint8:
		return append([]byte{}, data...)
	case []int: // of a fixed size here, as in the dtype
		x = widen[int64](data)
	case []uint:
		x = widen[uint64](data)
	}
	out, err := binary.Append(make([]byte, 0, binary.Size(x)), binary.LittleEndian, x)
	if err != nil {
		panic(err) // all types in Number have a fixed size
	}
	return out
}

func widen[To, From int | uint | int64 | uint64](from []From) []To {
	to := make([]To, len(from))
	for i, x := range from {
		to[i] = To(x)
	}
	return to
}

type arrayPayload struct {
	Dtype   string `py:"dtype"`
	Shape   []int  `py:"shape"`
	Fortran bool   `py:"fortran,omitempty"`
	Data    []byte `py:"data,omitempty"`
	Objects []any  `py:"objects,omitempty"`
}

func (a Array) form() (Kind, any, error) {
	if _, _, err := a.check(DefaultMaxElements); err != nil {
		return "", nil, err
	}
	return KindArray, a.payload(), nil
}

func (a Array) payload() arrayPayload {
	p := arrayPayload(a)
	if a.Dtype == objectDtype {
		p.Data, p.Objects = nil, append([]any{}, a.Objects...)
	} else if p.Data == nil {
		p.Data = []byte{}
	}
	return p
}

const (
	objectDtype = "|O"
	// maxSides is numpy's limit of dimensions.
	maxSides = 64
	// maxElements limits the number of elements. An array with more elements does not fit into memory.
	maxElements = math.MaxInt / 2
)

// check returns the dtype and the number of elements of an array, or an error
// if the array is not valid.
func (a Array) check(limit int) (dtype, int, error) {
	t, err := parseDtype(a.Dtype)
	if err != nil {
		return t, 0, err
	}
	if len(a.Shape) > maxSides {
		return t, 0, fmt.Errorf("an array of %d dimensions", len(a.Shape))
	}
	n, err := elementCount(a.Shape, limit)
	switch {
	case err != nil:
		return t, 0, err
	case t.kind == 'O' && (len(a.Objects) != n || len(a.Data) > 0):
		return t, 0, fmt.Errorf("an array of the shape %v with %d objects", a.Shape, len(a.Objects))
	case t.kind != 'O' && (n*t.size != len(a.Data) || len(a.Objects) > 0):
		return t, 0, fmt.Errorf("an array of %d elements of %d bytes with a buffer of %d", n, t.size, len(a.Data))
	}
	return t, n, nil
}

func (d *decoder) array() (any, error) {
	var p arrayPayload
	if err := d.decode(reflect.ValueOf(&p).Elem()); err != nil {
		return nil, err
	}
	a := Array(p)
	if _, _, err := a.check(d.limits.MaxElements); err != nil {
		return nil, d.wrong(err)
	}
	return a, nil
}

// Len returns the number of elements.
func (a Array) Len() int {
	n, err := elementCount(a.Shape, maxElements)
	if err != nil {
		return 0
	}
	return n
}

// At returns the element at a position in row order. It is a bool, int64, uint64, float64,
// complex128, string, []byte, a naive time.Time, a time.Duration or [Timedelta], [NaT], a
// [Dict] for a structured dtype, or an object.
func (a Array) At(i int) (any, error) {
	t, n, err := a.check(maxElements)
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	if i < 0 || i >= n {
		return nil, fmt.Errorf("state: element %d of an array of %d", i, n)
	}
	return a.at(t, a.place(i))
}

func (a Array) at(t dtype, place int) (any, error) {
	if t.kind == 'O' {
		return a.Objects[place], nil
	}
	return t.value(a.Data[place*t.size : (place+1)*t.size])
}

// place converts a position in row order to the position in the buffer.
func (a Array) place(i int) int {
	if !a.Fortran || a.Dtype == objectDtype {
		return i
	}
	stride, place := 1, 0
	strides := make([]int, len(a.Shape))
	for side, n := range a.Shape {
		strides[side] = stride
		stride *= n
	}
	for side := len(a.Shape) - 1; side >= 0; side-- {
		place += i % a.Shape[side] * strides[side]
		i /= a.Shape[side]
	}
	return place
}

// Elements returns the elements of an array in row order, as a type that can represent each element
// exactly. If T is the dtype's own type, Elements only copies the buffer. If a value is missing, T
// must be a pointer type.
func Elements[T any](a Array) ([]T, error) {
	t, n, err := a.check(maxElements)
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	out := make([]T, n)
	if a.storedAsGo(t, reflect.TypeFor[T]()) {
		if _, err := binary.Decode(a.Data, t.order, out); err == nil {
			return out, nil
		}
	}
	d, as := &decoder{}, node{kind: KindArray}
	for i := range out {
		x, err := a.at(t, a.place(i))
		if err == nil {
			err = d.fitElement(0, as, x, reflect.ValueOf(&out[i]).Elem())
		}
		if err != nil {
			return nil, within(err, index(i))
		}
	}
	return out, nil
}

// storedAsGo reports whether the buffer stores the elements as Go does.
func (a Array) storedAsGo(t dtype, to reflect.Type) bool {
	if a.Fortran && len(a.Shape) > 1 || to.Size() != uintptr(t.size) || to.PkgPath() != "" {
		return false
	}
	switch to.Kind() {
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return t.kind == 'i'
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return t.kind == 'u'
	case reflect.Float32, reflect.Float64:
		return t.kind == 'f'
	case reflect.Complex64, reflect.Complex128:
		return t.kind == 'c'
	}
	return false
}

// fitArray stores an array in a slice. Each further dimension is a slice inside the slice of the
// dimension before it.
func (d *decoder) fitArray(start int, n node, a Array, v reflect.Value) error {
	t, _, err := a.check(d.limits.MaxElements)
	if err != nil {
		return d.wrong(err)
	}
	if v.Kind() != reflect.Slice || len(a.Shape) == 0 {
		return d.mismatch(n, v)
	}
	if len(a.Shape) == 1 && a.storedAsGo(t, v.Type().Elem()) {
		v.Set(reflect.MakeSlice(v.Type(), a.Shape[0], a.Shape[0]))
		if _, err := binary.Decode(a.Data, t.order, v.Interface()); err == nil {
			return nil
		}
	}
	next := 0
	return d.fitSide(start, n, v, a.Shape, func(v reflect.Value) error {
		x, err := a.at(t, a.place(next))
		if err != nil {
			return d.wrong(err)
		}
		next++
		return d.fitElement(start, n, x, v)
	})
}

func (d *decoder) fitSide(start int, n node, v reflect.Value, shape []int, element func(reflect.Value) error) error {
	if len(shape) == 0 {
		return element(v)
	}
	if v.Kind() != reflect.Slice {
		return d.mismatch(n, v)
	}
	if err := d.count(shape[0]); err != nil { // slices of slices cost more than their elements
		return err
	}
	v.Set(reflect.MakeSlice(v.Type(), shape[0], shape[0]))
	for i := range shape[0] {
		if err := d.fitSide(start, n, v.Index(i), shape[1:], element); err != nil {
			return within(err, index(i))
		}
	}
	return nil
}

type scalarPayload struct {
	Dtype string `py:"dtype"`
	Data  []byte `py:"data"`
}

func (s Scalar) form() (Kind, any, error) {
	_, err := scalarOf(scalarPayload(s))
	return KindScalar, scalarPayload(s), err
}

func scalarOf(p scalarPayload) (Scalar, error) {
	t, err := parseDtype(p.Dtype)
	if err == nil && (t.kind == 'O' || len(p.Data) != t.size && !t.terminator(p.Data)) {
		err = fmt.Errorf("a scalar of the dtype %.40q with %d bytes", p.Dtype, len(p.Data))
	}
	return Scalar(p), err
}

// terminator reports whether data is a single zero character. numpy's tobytes returns this
// character for an empty text, although the size of the dtype is 0 bytes.
func (t dtype) terminator(data []byte) bool {
	width := map[byte]int{'U': 4, 'S': 1}[t.kind]
	return t.size == 0 && width > 0 && bytes.Equal(data, make([]byte, width))
}

// Value returns the scalar as a Go value, of the types of [Array.At].
func (s Scalar) Value() (any, error) {
	if _, err := scalarOf(scalarPayload(s)); err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	t, err := parseDtype(s.Dtype)
	if err != nil {
		return nil, err
	}
	return t.value(s.Data)
}

func (s Scalar) String() string {
	x, err := s.Value()
	if err != nil {
		return fmt.Sprintf("<%s>", s.Dtype)
	}
	return fmt.Sprint(x)
}

// wrong adds the position in the document to an error.
func (d *decoder) wrong(err error) error {
	if limit, ok := errors.AsType[*LimitError](err); ok {
		return limit
	}
	return d.fail("%v", err)
}
