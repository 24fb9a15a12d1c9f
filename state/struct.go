package state

import (
	"fmt"
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

// fields is how a struct type maps to a dict.
type fields struct {
	list   []field
	byName map[string]int
	err    string
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
	f := &fields{byName: map[string]int{}}
	for _, sf := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(sf.Tag.Get("py"), ",")
		if name == "-" || !sf.IsExported() || underTagged(t, sf.Index) {
			continue
		}
		if sf.Anonymous && name == "" && isStruct(sf.Type) {
			continue // its fields are promoted in its place
		}
		if name == "" {
			name = sf.Name
		}
		if i, ok := f.byName[name]; ok {
			f.err = fmt.Sprintf("fields %s and %s both have the key %q", t.FieldByIndex(f.list[i].index).Name, sf.Name, name)
			return f
		}
		f.byName[name] = len(f.list)
		f.list = append(f.list, field{name: name, key: appendString(nil, name), index: sf.Index, omitEmpty: slices.Contains(strings.Split(options, ","), "omitempty")})
	}
	return f
}

func isStruct(t reflect.Type) bool {
	return t.Kind() == reflect.Struct || t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct
}

// underTagged reports whether a promoted field belongs to an embedded struct
// that is left out or has a key of its own.
func underTagged(t reflect.Type, index []int) bool {
	for i := 1; i < len(index); i++ {
		if t.FieldByIndex(index[:i]).Tag.Get("py") != "" {
			return true
		}
	}
	return false
}

// settable walks to a field and allocates embedded pointers on the way.
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
