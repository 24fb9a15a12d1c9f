package control

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/requestlog"
)

// decode reads the JSON object of a request into the struct to which v points. If optional is
// false, an empty body is an error. decode ignores unknown fields, so that newer clients work, and
// adds their names to the request log.
func decode(w http.ResponseWriter, r *http.Request, v any, optional bool) error {
	body, err := readBody(w, r)
	if err != nil {
		return err
	}
	if len(strings.TrimSpace(string(body))) == 0 {
		if optional {
			return nil
		}
		return invalid("the request has no body")
	}
	if err := json.Unmarshal(body, v); err != nil {
		if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			if e.Field == "" {
				return invalid("the body must be an object, not %s", e.Value)
			}
			return invalid("%s must be %s, not %s", bounded(fieldPath(e.Field, reflect.TypeOf(v).Elem())), kindName(e.Type), e.Value)
		}
		return errorf(http.StatusBadRequest, "the body is not JSON: %s", reason(err))
	}
	requestlog.Ignored(r.Context(), unknownFields(body, reflect.TypeOf(v).Elem(), "")...)
	return nil
}

func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	// The recorders of tests do not support deadlines. Real connections do.
	rc := http.NewResponseController(w)
	if rc.SetReadDeadline(time.Now().Add(bodyDeadline)) == nil {
		// A deadline that stayed set would look as if the client had gone away.
		defer func() { _ = rc.SetReadDeadline(time.Time{}) }()
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		return body, nil
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, errorf(http.StatusRequestEntityTooLarge, "the body is larger than %d MiB", maxBody>>20)
	}
	return nil, errorf(http.StatusBadRequest, "the body could not be read: %s", reason(err))
}

// fieldPath returns the path of a field as clients write it. path is the path in an error of
// encoding/json about the type t. It also includes the names of embedded structs, and fieldPath
// removes these names.
func fieldPath(path string, t reflect.Type) string {
	var known []string
	for name := range strings.SplitSeq(path, ".") {
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() == reflect.Struct {
			if f, ok := t.FieldByName(name); ok && f.Anonymous {
				t = f.Type
				continue
			}
			if i := slices.IndexFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool { return jsonName(f) == name }); i >= 0 {
				t = reflect.VisibleFields(t)[i].Type
			}
		}
		known = append(known, name)
	}
	return strings.Join(known, ".")
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "a boolean"
	case reflect.Int32:
		return "a 32-bit integer"
	case reflect.Int64:
		return "a whole number"
	case reflect.Uint32:
		return "a number from 0 to 4294967295"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "an array"
	default:
		return "an object"
	}
}

// unknownFields returns the paths of those fields of a JSON value that type t does not have. The
// paths are sorted and have no duplicates. As in errors of encoding/json, the paths leave out the
// positions in lists and the keys of maps.
func unknownFields(value []byte, t reflect.Type, path string) []string {
	var unknown []string
	switch t.Kind() {
	case reflect.Pointer:
		return unknownFields(value, t.Elem(), path)
	case reflect.Slice:
		var elements []json.RawMessage
		if !nests(t.Elem()) || json.Unmarshal(value, &elements) != nil {
			return nil
		}
		for _, element := range elements {
			unknown = append(unknown, unknownFields(element, t.Elem(), path)...)
		}
	case reflect.Map:
		var values map[string]json.RawMessage
		if !nests(t.Elem()) || json.Unmarshal(value, &values) != nil {
			return nil
		}
		for _, v := range values {
			unknown = append(unknown, unknownFields(v, t.Elem(), path)...)
		}
	case reflect.Struct:
		var fields map[string]json.RawMessage
		if json.Unmarshal(value, &fields) != nil {
			return nil
		}
		known := knownFields(t)
		for name, v := range fields {
			if ft, ok := known[name]; ok {
				unknown = append(unknown, unknownFields(v, ft, path+name+".")...)
			} else {
				unknown = append(unknown, path+name)
			}
		}
	}
	slices.Sort(unknown)
	return slices.Compact(unknown)
}

// nests reports whether a value of type t may contain unknown fields.
func nests(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return nests(t.Elem())
	default:
		return t.Kind() == reflect.Struct
	}
}

// knownFields maps the JSON names of a struct's fields to their types. It includes the fields
// of embedded structs.
func knownFields(t reflect.Type) map[string]reflect.Type {
	known := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		if name := jsonName(f); name != "" {
			known[name] = f.Type
		}
	}
	return known
}
