package state

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"reflect"
	"slices"
	"strconv"
)

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

// packed writes a long list of only floats as one block.
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
	// Three words have 24 bytes, which base64 encodes without padding.
	for block := range slices.Chunk(floats, 3*64) {
		e.buf = base64.StdEncoding.AppendEncode(e.buf, raw(block))
	}
	e.text(`"}`)
	return true, nil
}

// floatsOf returns the elements of a list of only floats, and nil for any other
// list.
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

// hashable encodes a key or an item of a set into a separate buffer.
func (e *encoder) hashable(v reflect.Value) ([]byte, error) {
	start := len(e.buf)
	e.frozen++
	err := e.value(v)
	e.frozen--
	encoded := bytes.Clone(e.buf[start:])
	e.buf = e.buf[:start]
	return encoded, err
}
