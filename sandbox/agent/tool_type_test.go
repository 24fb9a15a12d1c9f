package agent

import (
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/state"
)

type (
	treeOfNames struct {
		Name string        `json:"name"`
		Subs []treeOfNames `json:"subs,omitempty"`
	}
	badField struct {
		Bad chan int `json:"bad"`
	}
	embedding   struct{ treeOfNames }
	keywordName struct {
		A int `json:"class"`
	}
	builtinName struct {
		A int `json:"list"`
	}
	mixedOrder struct {
		Late  int  `json:"late,omitempty"`
		Maybe *int `json:"maybe"`
		First int  `json:"first" doc:"the first"`
		Left  int  `json:"-"`
	}
)

// TestPythonTypes checks the annotation and the schema of each kind of type, alone and in others.
func TestPythonTypes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		of                 reflect.Type
		annotation, schema string // no annotation: it has no Python form
	}{
		{reflect.TypeFor[bool](), "bool", `{"type":"boolean"}`},
		{reflect.TypeFor[int8](), "int", `{"type":"integer"}`},
		{reflect.TypeFor[uint64](), "int", `{"type":"integer"}`},
		{reflect.TypeFor[float32](), "float", `{"type":"number"}`},
		{reflect.TypeFor[complex64](), "complex", `{}`},
		{reflect.TypeFor[string](), "str", `{"type":"string"}`},
		{reflect.TypeFor[any](), "Any", `{}`},
		{reflect.TypeFor[*int](), "int", `{"type":"integer"}`},
		{reflect.TypeFor[time.Time](), "datetime.datetime", `{"format":"date-time","type":"string"}`},
		{reflect.TypeFor[time.Duration](), "datetime.timedelta", `{"format":"duration","type":"string"}`},
		{reflect.TypeFor[big.Int](), "int", `{"type":"integer"}`},
		{reflect.TypeFor[*big.Rat](), "fractions.Fraction", `{"type":"string"}`},
		{reflect.TypeFor[state.Dict](), "dict", `{"type":"object"}`},
		{reflect.TypeFor[state.Tuple](), "tuple", `{"type":"array"}`},
		{reflect.TypeFor[state.Set](), "set", `{"type":"array"}`},
		{reflect.TypeFor[state.FrozenSet](), "frozenset", `{"type":"array"}`},
		{reflect.TypeFor[state.Opaque](), "Any", `{}`},
		{reflect.TypeFor[netip.Addr](), "str", `{"type":"string"}`},
		{reflect.TypeFor[[]byte](), "bytes", `{"contentEncoding":"base64","type":"string"}`},
		{reflect.TypeFor[[4]byte](), "bytes", `{"contentEncoding":"base64","type":"string"}`},
		{reflect.TypeFor[[]int](), "list[int]", `{"items":{"type":"integer"},"type":"array"}`},
		{reflect.TypeFor[[2]string](), "tuple[str, ...]", `{"items":{"type":"string"},"maxItems":2,"minItems":2,"type":"array"}`},
		{reflect.TypeFor[map[string]int](), "dict[str, int]", `{"additionalProperties":{"type":"integer"},"type":"object"}`},
		{reflect.TypeFor[map[string]struct{}](), "set[str]", `{"items":{"type":"string"},"type":"array","uniqueItems":true}`},
		{reflect.TypeFor[treeOfNames](), "dict", `{"properties":{"name":{"type":"string"},"subs":{"items":{"type":"object"},"type":"array"}},"required":["name"],"type":"object"}`},
		{of: reflect.TypeFor[chan int]()},
		{of: reflect.TypeFor[func()]()},
		{of: reflect.TypeFor[io.Reader]()},
		{of: reflect.TypeFor[*chan int]()},
		{of: reflect.TypeFor[[]chan int]()},
		{of: reflect.TypeFor[[2]chan int]()},
		{of: reflect.TypeFor[map[string]chan int]()},
		{of: reflect.TypeFor[map[chan int]int]()},
		{of: reflect.TypeFor[map[chan int]struct{}]()},
		{of: reflect.TypeFor[badField]()},
		{of: reflect.TypeFor[[]map[string]*badField]()},
	} {
		got, err := pythonTypeOf(tt.of, nil)
		if tt.annotation == "" {
			if err == nil || !strings.Contains(err.Error(), "has no Python form") {
				t.Errorf("%s: got %+v and error %v, want that it has no Python form", tt.of, got, err)
			}
			continue
		}
		must.Do(t, err)
		schema, err := json.Marshal(got.schema)
		if must.Do(t, err); got.annotation != tt.annotation || cmp.Diff(tt.schema, string(schema)) != "" {
			t.Errorf("%s: got %s %s, want %s %s", tt.of, got.annotation, schema, tt.annotation, tt.schema)
		}
		if want := detailOf(tt.of, tt.annotation); got.detail != want {
			t.Errorf("%s: got the detail %q, want %q", tt.of, got.detail, want)
		}
	}
	for of, want := range map[reflect.Type]string{reflect.TypeFor[struct{}](): "None", reflect.TypeFor[int](): "int", reflect.TypeFor[treeOfNames](): "dict"} {
		if got, err := returnOf(of); err != nil || got.annotation != want {
			t.Errorf("%s as a result: got %q and error %v, want %s", of, got.annotation, err, want)
		}
	}
}

// detailOf returns the detail of a type: its annotation, except for a struct.
func detailOf(of reflect.Type, annotation string) string {
	if of == reflect.TypeFor[treeOfNames]() {
		return "{'name': str, 'subs': list[dict]}"
	}
	return annotation
}

// TestParametersOfAStruct checks the order of parameters, which of them a call needs, and the structs that are refused.
func TestParametersOfAStruct(t *testing.T) {
	t.Parallel()
	list, err := parametersOf(reflect.TypeFor[mixedOrder]())
	must.Do(t, err)
	var got []string
	for _, p := range list {
		got = append(got, p.name+" "+p.property+" "+p.doc+map[bool]string{true: "!"}[p.required])
	}
	if diff := cmp.Diff([]string{"first first the first!", "late late ", "maybe maybe "}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	_, err = parametersOf(reflect.TypeFor[builtinName]())
	must.Do(t, err)
	sameNames := reflect.StructOf([]reflect.StructField{ // vet refuses such a type in the source
		{Name: "A", Type: reflect.TypeFor[int](), Tag: `json:"a"`},
		{Name: "B", Type: reflect.TypeFor[int](), Tag: `json:"a"`},
	})
	for of, want := range map[reflect.Type]string{
		reflect.TypeFor[int]():         "it has to be a struct",
		reflect.TypeFor[embedding]():   "the field treeOfNames is embedded",
		reflect.TypeFor[keywordName](): "field A: ",
		sameNames:                      `two parameters have the name "a"`,
		reflect.TypeFor[badField]():    "field Bad: chan int has no Python form",
	} {
		if list, err := parametersOf(of); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v and error %v, want %q", of, list, err, want)
		}
	}
}

// TestFollow checks the targets of pointers in a schema, and those that point nowhere.
func TestFollow(t *testing.T) {
	t.Parallel()
	root := map[string]any{"a": map[string]any{"b/c": "slash", "d~e": "tilde", "f g": "space"}, "list": []any{"first", "last"}, "none": nil}
	for ref, want := range map[string]any{
		"#/a/b~1c": "slash", "#/a/d~0e": "tilde", "#/a/f%20g": "space", "#/list/0": "first", "#/list/1": "last",
		"#/list/2": nil, "#/list/-1": nil, "#/list/x": nil, "#/a/b~1c/d": nil, "#/missing": nil, "#/none": nil, "#/%zz": nil,
	} {
		if got, ok := follow(root, ref); ok != (want != nil) || ok && got != want {
			t.Errorf("%s: got %v and %v, want %v", ref, got, ok, want)
		}
	}
	if got, ok := follow(root, "#"); !ok || cmp.Diff(any(root), got) != "" {
		t.Errorf("the root: got %v and %v", got, ok)
	}
}

// TestEffortIsBounded checks the most schemas and the deepest one that a check applies, and those beyond.
func TestEffortIsBounded(t *testing.T) {
	t.Parallel()
	deep := func(n int) any {
		var schema any = map[string]any{}
		for range n {
			schema = map[string]any{"allOf": []any{schema}}
		}
		return schema
	}
	for name, tt := range map[string]struct {
		schema any
		value  any
		left   int
		want   error
	}{
		"one":               {true, nil, 1, nil},
		"none is left":      {true, nil, 0, errEffort},
		"the deepest":       {deep(maxCheckLevels), nil, 1 << 20, nil},
		"one deeper":        {deep(maxCheckLevels + 1), nil, 1 << 20, errEffort},
		"options":           {map[string]any{"enum": []any{1, 2}, "allOf": []any{true}}, nil, 4, nil},
		"too many options":  {map[string]any{"enum": []any{1, 2}, "allOf": []any{true}}, nil, 3, errEffort},
		"fields":            {map[string]any{"additionalProperties": map[string]any{}}, map[string]any{"a": 1, "b": 2}, 3, nil},
		"too many fields":   {map[string]any{"additionalProperties": map[string]any{}}, map[string]any{"a": 1, "b": 2}, 2, errEffort},
		"items":             {map[string]any{"items": map[string]any{}}, []any{1, 2}, 3, nil},
		"too many items":    {map[string]any{"items": map[string]any{}}, []any{1, 2}, 2, errEffort},
		"each its own":      {map[string]any{"prefixItems": []any{true}}, []any{1, 2}, 2, nil},
		"a reference":       {map[string]any{"$ref": "#/a"}, nil, 2, nil},
		"a reference more":  {map[string]any{"$ref": "#/a"}, nil, 1, errEffort},
		"a named property":  {map[string]any{"properties": map[string]any{"a": true}}, map[string]any{"a": 1}, 2, nil},
		"one property more": {map[string]any{"properties": map[string]any{"a": true}}, map[string]any{"a": 1}, 1, errEffort},
	} {
		e := &effort{targets: map[string]any{"#/a": true}, left: tt.left}
		if err := e.apply(tt.schema, tt.value, 0); !errors.Is(err, tt.want) {
			t.Errorf("%s: got error %v, want %v; %d are left", name, err, tt.want, e.left)
		}
	}
}
