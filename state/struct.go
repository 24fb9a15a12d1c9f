package state

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// field is one key of a struct's dict.
type field struct {
	name      string
	key       []byte // the name, encoded
	index     []int
	omitEmpty bool
}

// fields describes the conversion between a struct type and a dict.
type fields struct {
	list   []field
	byName map[string]int
	// folded contains the names in lower case, except names that differ only in case.
	folded map[string]int
	err    string
}

// find returns the field for a key of a dict. exact is false if the key and the field's name differ
// in case.
func (f *fields) find(key string) (at int, exact, ok bool) {
	if at, ok = f.byName[key]; ok {
		return at, true, true
	}
	at, ok = f.folded[strings.ToLower(key)]
	return at, false, ok
}

// FieldKey returns the dict key of a struct field, and whether a zero value is omitted. It reads
// the tag py or, if there is none, the tag json. ok is false for a field that is always omitted.
// The key is empty for an embedded struct whose tag has no name, because its fields are treated as
// fields of the outer struct.
func FieldKey(f reflect.StructField) (key string, omitEmpty, ok bool) {
	tag, has := f.Tag.Lookup("py")
	if !has {
		tag = f.Tag.Get("json")
	}
	key, options, _ := strings.Cut(tag, ",")
	omitEmpty = slices.Contains(strings.Split(options, ","), "omitempty")
	switch {
	case key == "-":
		return "", false, false
	case key == "" && f.Anonymous && isStruct(f.Type):
		return "", omitEmpty, true
	case !f.IsExported():
		return "", false, false
	case key == "":
		key = f.Name
	}
	return key, omitEmpty, true
}

var fieldCache sync.Map // reflect.Type -> *fields

func fieldsOf(t reflect.Type) *fields {
	if f, ok := fieldCache.Load(t); ok {
		return f.(*fields)
	}
	f, _ := fieldCache.LoadOrStore(t, newFields(t))
	return f.(*fields)
}

func newFields(t reflect.Type) *fields {
	f := &fields{byName: map[string]int{}, folded: map[string]int{}}
	for _, sf := range reflect.VisibleFields(t) {
		name, omitEmpty, ok := FieldKey(sf)
		if !ok || name == "" || underKey(t, sf.Index) {
			continue // the promoted fields of an embedded struct without a name replace it
		}
		if i, ok := f.byName[name]; ok {
			f.err = fmt.Sprintf("fields %s and %s both have the key %q", t.FieldByIndex(f.list[i].index).Name, sf.Name, name)
			return f
		}
		f.byName[name] = len(f.list)
		f.list = append(f.list, field{name: name, key: appendString(nil, name), index: sf.Index, omitEmpty: omitEmpty})
	}
	ambiguous := map[string]bool{}
	for i, field := range f.list {
		lower := strings.ToLower(field.name)
		_, taken := f.folded[lower]
		ambiguous[lower] = taken
		f.folded[lower] = i
	}
	maps.DeleteFunc(f.folded, func(lower string, _ int) bool { return ambiguous[lower] })
	return f
}

func isStruct(t reflect.Type) bool {
	return t.Kind() == reflect.Struct || t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct
}

// underKey reports whether a promoted field belongs to an embedded struct that is left
// out or has a key of its own.
func underKey(t reflect.Type, index []int) bool {
	for i := 1; i < len(index); i++ {
		if key, _, ok := FieldKey(t.FieldByIndex(index[:i])); key != "" || !ok {
			return true
		}
	}
	return false
}

// settable returns a field of v. It allocates the structs of nil embedded pointers on the path to
// the field.
func settable(v reflect.Value, index []int) (reflect.Value, bool) {
	for i, x := range index {
		if i > 0 && v.Kind() == reflect.Pointer {
			if v.IsNil() {
				if !v.CanSet() { // a pointer to an unexported struct
					return reflect.Value{}, false
				}
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		v = v.Field(x)
	}
	return v, true
}
