package state

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// entry is an encoded key with its encoded value.
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

// entryOrder returns the function that compares entries for sorting. Keys of a number type are
// compared as numbers, and all other keys by their encoding.
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

// dollar is the encoded string key "$". Only with this string key would a dict look like an object
// that names its kind.
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
	if !e.room(len(v.body()) + v.blobs.size()) {
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
