package agent

import (
	"encoding"
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/state"
)

// pythonType is the description of a Go type in Python and JSON Schema.
type pythonType struct {
	annotation string
	detail     string // the annotation, with the keys of structs
	schema     map[string]any
}

// toolParameter is one parameter of a tool.
type toolParameter struct {
	pythonType
	name     string
	property string // the name of the parameter in the schema
	doc      string
	required bool
}

// parametersOf returns the parameters for the fields of a struct. Required parameters come first.
func parametersOf(t reflect.Type) ([]toolParameter, error) {
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("the argument is a %s: it has to be a struct, whose fields are the parameters", t)
	}
	var list []toolParameter
	names := map[string]bool{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, omitempty, ok := state.FieldKey(f)
		if f.Anonymous {
			return nil, fmt.Errorf("the field %s is embedded: name the parameters one by one", f.Name)
		}
		if !ok {
			continue
		}
		if err := checkParameter(name); err != nil {
			return nil, fmt.Errorf("field %s: %w", f.Name, err)
		}
		if names[name] {
			return nil, fmt.Errorf("two parameters have the name %q", name)
		}
		names[name] = true
		shape, err := pythonTypeOf(f.Type, nil)
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", f.Name, err)
		}
		list = append(list, toolParameter{shape, name, name, f.Tag.Get("doc"), !omitempty && f.Type.Kind() != reflect.Pointer})
	}
	requiredFirst(list)
	return list, nil
}

// requiredFirst moves the required parameters to the front of list, because Python requires this
// order.
func requiredFirst(list []toolParameter) {
	slices.SortStableFunc(list, func(a, b toolParameter) int {
		switch {
		case a.required == b.required:
			return 0
		case a.required:
			return -1
		}
		return 1
	})
}

// checkParameter returns an error for an invalid name. It accepts the names that CheckName
// accepts, and also names of builtins, because a parameter hides a builtin only in its own
// function.
func checkParameter(name string) error {
	err := state.CheckName(name)
	if refused, ok := errors.AsType[*state.NameError](err); ok && strings.Contains(refused.Reason, "builtin") {
		return nil
	}
	return err
}

func returnOf(t reflect.Type) (pythonType, error) {
	if t.Kind() == reflect.Struct && t.NumField() == 0 {
		return pythonType{annotation: "None", detail: "None"}, nil
	}
	return pythonTypeOf(t, nil)
}

func plainType(annotation, kind string) pythonType {
	schema := map[string]any{}
	if kind != "" {
		schema["type"] = kind
	}
	return pythonType{annotation, annotation, schema}
}

var (
	textTypes    = []reflect.Type{reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.TextUnmarshaler]()}
	ownTypes     = []reflect.Type{reflect.TypeFor[state.PythonMarshaler](), reflect.TypeFor[state.PythonUnmarshaler]()}
	statePackage = reflect.TypeFor[state.Value]().PkgPath()
)

func anyType() pythonType { return plainType("Any", "") }

// knownType describes the types that package state treats specially.
func knownType(t reflect.Type) (pythonType, bool) {
	switch t {
	case reflect.TypeFor[time.Time]():
		return pythonType{"datetime.datetime", "datetime.datetime", map[string]any{"type": "string", "format": "date-time"}}, true
	case reflect.TypeFor[time.Duration]():
		return pythonType{"datetime.timedelta", "datetime.timedelta", map[string]any{"type": "string", "format": "duration"}}, true
	case reflect.TypeFor[big.Int]():
		return plainType("int", "integer"), true
	case reflect.TypeFor[big.Rat]():
		return plainType("fractions.Fraction", "string"), true
	case reflect.TypeFor[state.Dict]():
		return plainType("dict", "object"), true
	case reflect.TypeFor[state.Tuple]():
		return plainType("tuple", "array"), true
	case reflect.TypeFor[state.Set]():
		return plainType("set", "array"), true
	case reflect.TypeFor[state.FrozenSet]():
		return plainType("frozenset", "array"), true
	}
	return pythonType{}, false
}

func implements(t reflect.Type, interfaces []reflect.Type) bool {
	return slices.ContainsFunc(interfaces, func(i reflect.Type) bool {
		return t.Implements(i) || t.Kind() != reflect.Pointer && reflect.PointerTo(t).Implements(i)
	})
}

// pythonTypeOf describes a type. outer contains the enclosing structs.
func pythonTypeOf(t reflect.Type, outer []reflect.Type) (pythonType, error) {
	if known, ok := knownType(t); ok {
		return known, nil
	}
	switch {
	case t.Kind() == reflect.Pointer:
		p, err := pythonTypeOf(t.Elem(), outer)
		return p, err
	case t.PkgPath() == statePackage, implements(t, ownTypes):
		return anyType(), nil
	case implements(t, textTypes):
		return plainType("str", "string"), nil
	}
	switch t.Kind() {
	case reflect.Bool:
		return plainType("bool", "boolean"), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return plainType("int", "integer"), nil
	case reflect.Float32, reflect.Float64:
		return plainType("float", "number"), nil
	case reflect.Complex64, reflect.Complex128:
		return plainType("complex", ""), nil
	case reflect.String:
		return plainType("str", "string"), nil
	case reflect.Interface:
		if t.NumMethod() == 0 {
			return anyType(), nil
		}
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return pythonType{"bytes", "bytes", map[string]any{"type": "string", "contentEncoding": "base64"}}, nil
		}
		item, err := pythonTypeOf(t.Elem(), outer)
		schema := map[string]any{"type": "array", "items": item.schema}
		format := "list[%s]"
		if t.Kind() == reflect.Array {
			format = "tuple[%s, ...]"
			schema["minItems"], schema["maxItems"] = t.Len(), t.Len()
		}
		return pythonType{fmt.Sprintf(format, item.annotation), fmt.Sprintf(format, item.detail), schema}, err
	case reflect.Map:
		key, err := pythonTypeOf(t.Key(), outer)
		if err != nil {
			return key, err
		}
		if t.Elem().Kind() == reflect.Struct && t.Elem().NumField() == 0 {
			return pythonType{"set[" + key.annotation + "]", "set[" + key.detail + "]", map[string]any{"type": "array", "uniqueItems": true, "items": key.schema}}, nil
		}
		value, err := pythonTypeOf(t.Elem(), outer)
		return pythonType{
			"dict[" + key.annotation + ", " + value.annotation + "]", "dict[" + key.detail + ", " + value.detail + "]",
			map[string]any{"type": "object", "additionalProperties": value.schema},
		}, err
	case reflect.Struct:
		return structType(t, outer)
	}
	return pythonType{}, fmt.Errorf("%s has no Python form", t)
}

func structType(t reflect.Type, outer []reflect.Type) (pythonType, error) {
	if slices.Contains(outer, t) {
		return plainType("dict", "object"), nil
	}
	outer = append(slices.Clone(outer), t)
	properties, required, keys := map[string]any{}, []string{}, []string{}
	for _, f := range reflect.VisibleFields(t) {
		name, omitempty, ok := state.FieldKey(f)
		if !ok || name == "" {
			continue
		}
		p, err := pythonTypeOf(f.Type, outer)
		if err != nil {
			return p, fmt.Errorf("%s.%s: %w", t, f.Name, err)
		}
		properties[name] = p.schema
		if !omitempty {
			required = append(required, name)
		}
		keys = append(keys, "'"+name+"': "+p.detail)
	}
	return pythonType{"dict", "{" + strings.Join(keys, ", ") + "}", map[string]any{"type": "object", "properties": properties, "required": required}}, nil
}
