package agent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/e2bctl/e2bctl/state"
)

// ToolFromSchema makes a tool whose parameters are known only at run time, for instance a tool
// of a server of the Model Context Protocol. schema is a JSON Schema of the type "object", of draft
// 7 or 2020-12. Its properties are the parameters of the tool. The required parameters come first,
// in the order of the schema, and then the optional parameters, in the order of the schema. If an
// optional parameter is missing or None, the arguments that fn receives do not contain it.
// [Tool.Schema] returns schema unchanged.
//
// If the name of a property is not valid in Python, the parameter has another name: a character
// other than a letter, digit or underscore becomes "_", a keyword gets a "_" at its end, and a
// leading digit gets a "_" before it. The arguments that fn receives have the original names.
//
// The arguments are checked against schema before fn is called. If arguments do not match, or would
// take too long to check, the code receives a TypeError. Two things are not checked: formats, and
// patterns that [regexp] does not support. Keywords that depend on such a pattern are not checked
// either.
//
// fn receives the arguments as a JSON object. In this object, bytes are base64, tuples are arrays,
// and times are RFC 3339. If an argument contains any other value without a JSON form, the code
// receives a TypeError. Package state converts the result of fn. If the result is a
// [json.RawMessage], it becomes the value that its text represents. For the contexts, errors and
// panics of fn, see [NewTool].
//
// ToolFromSchema returns an error if the name, the schema or an option is invalid. A reference must
// be within the schema, such as "#/$defs/name". ToolFromSchema refuses $dynamicRef, and references
// to other documents, to an $anchor or to a nested $id. It also refuses two properties that get the
// same name in Python, and schemas that are nested more than 100 deep.
func ToolFromSchema(name, doc string, schema json.RawMessage, fn func(context.Context, json.RawMessage) (any, error), opts ...ToolOption) (Tool, error) {
	t, err := newTool(name, doc, opts)
	if err != nil {
		return Tool{}, err
	}
	object, err := readSchema(schema)
	if err != nil {
		return Tool{}, fmt.Errorf("agent: the schema of the tool %s: %w", name, err)
	}
	t.parameters, t.schema, t.returns = object.parameters, slices.Clone(schema), anyType()
	t.call = func(ctx context.Context, arguments state.Value) (state.Value, error) {
		text, err := object.arguments(arguments)
		if err != nil {
			return state.Value{}, &argumentError{err}
		}
		out, err := fn(ctx, text)
		if err != nil {
			return state.Value{}, err
		}
		return resultValue(out)
	}
	return t, nil
}

// objectSchema contains the schema of a tool's arguments in several forms.
type objectSchema struct {
	resolved   *jsonschema.Resolved
	plain      *plainSchema // the schema in resolved, decoded by encoding/json
	parameters []toolParameter
	own        map[string]string // names of properties, keyed by the names of their parameters
}

func readSchema(text json.RawMessage) (*objectSchema, error) {
	var loose any
	if err := json.Unmarshal(text, &loose); err != nil {
		return nil, fmt.Errorf("read it: %w", err)
	}
	plain, err := newPlainSchema(loose)
	if err != nil {
		return nil, err
	}
	known, err := json.Marshal(loose)
	if err != nil {
		return nil, err
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal(known, &schema); err != nil {
		return nil, fmt.Errorf("read it: %w", err)
	}
	if schema.Type != "object" {
		return nil, errors.New(`its type has to be "object", whose properties are the parameters`)
	}
	o := &objectSchema{plain: plain, own: map[string]string{}}
	if o.resolved, err = schema.Resolve(nil); err != nil {
		return nil, err
	}
	names, err := propertyNames(text)
	if err != nil {
		return nil, err
	}
	for _, own := range names {
		property := schema.Properties[own]
		name := pythonName(own)
		if err := checkParameter(name); err != nil {
			return nil, fmt.Errorf("the property %.64q: %w", own, err)
		}
		if other, taken := o.own[name]; taken {
			return nil, fmt.Errorf("the properties %.64q and %.64q would both be the parameter %s", other, own, name)
		}
		o.own[name] = own
		o.parameters = append(o.parameters, toolParameter{schemaType(property), name, own, property.Description, slices.Contains(schema.Required, own)})
	}
	requiredFirst(o.parameters)
	return o, nil
}

// propertyNames returns the names of a schema's properties in order. A decoded map would lose
// the order.
func propertyNames(schema json.RawMessage) ([]string, error) {
	var object map[string]json.RawMessage // a struct would ignore case
	if err := json.Unmarshal(schema, &object); err != nil {
		return nil, err
	}
	properties := object["properties"]
	if properties == nil {
		return nil, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(properties))
	if _, err := decoder.Token(); err != nil { // the brace
		return nil, err
	}
	var names []string
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		name, ok := key.(string)
		if !ok {
			return nil, errors.New("its properties have to be an object")
		}
		var property json.RawMessage
		if err := decoder.Decode(&property); err != nil {
			return nil, err
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// pythonName returns the name of the parameter for a property.
func pythonName(property string) string {
	name := strings.Map(func(r rune) rune {
		if r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return '_'
	}, property)
	if checkParameter(name) == nil {
		return name
	}
	if checkParameter(name+"_") == nil { // the name is a keyword
		return name + "_"
	}
	return "_" + name // the name begins with a digit
}

// schemaType returns a Python type that describes the values which a property's schema allows.
func schemaType(s *jsonschema.Schema) pythonType {
	types := s.Types
	if s.Type != "" {
		types = []string{s.Type}
	}
	if len(types) == 0 {
		types = []string{""}
	}
	var annotations, details []string
	for i, one := range types {
		if slices.Contains(types[:i], one) { // describing a type twice would double the text at each level of nesting
			continue
		}
		annotation := cmp.Or(pythonTypes[one], "Any")
		detail := annotation
		switch {
		case one == "array" && s.Items != nil:
			item := schemaType(s.Items)
			annotation, detail = "list["+item.annotation+"]", "list["+item.detail+"]"
		case one == "object" && len(s.Properties) > 0:
			detail = schemaDict(s)
		}
		annotations, details = append(annotations, annotation), append(details, detail)
	}
	t := pythonType{annotation: strings.Join(annotations, " | "), detail: strings.Join(details, " | ")}
	if len(s.Enum) > 0 {
		if text, err := json.Marshal(s.Enum); err == nil {
			t.detail += ", one of " + strings.Trim(string(text), "[]")
		}
	}
	return t
}

// schemaDict describes the keys of an object, in the form in which structType describes a struct.
func schemaDict(s *jsonschema.Schema) string {
	var keys []string
	for name, property := range s.Properties {
		keys = append(keys, "'"+name+"': "+schemaType(property).detail)
	}
	slices.Sort(keys)
	return "{" + strings.Join(keys, ", ") + "}"
}

// pythonTypes maps the types of JSON Schema to types of Python.
var pythonTypes = map[string]string{
	"":       "Any",
	"string": "str", "integer": "int", "number": "float", "boolean": "bool", "array": "list", "object": "dict", "null": "None",
}

// arguments returns a call's arguments as a JSON object, or an error if they do not match the
// schema.
func (o *objectSchema) arguments(v state.Value) (json.RawMessage, error) {
	var given map[string]any
	if err := v.Decode(&given); err != nil {
		return nil, err
	}
	named := map[string]any{}
	for name, value := range given {
		value, err := jsonOf(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		named[o.own[name]] = value
	}
	text, err := json.Marshal(named)
	if err != nil {
		return nil, err
	}
	var plain any
	if err := json.Unmarshal(text, &plain); err != nil {
		return nil, err
	}
	check := effort{targets: o.plain.targets, left: checkBase + checkPerByte*len(text)}
	if err := check.apply(o.plain.root, plain, 0); err != nil {
		return nil, err
	}
	if err := o.resolved.Validate(plain); err != nil {
		return nil, errors.New("they do not match the tool's schema: " + strings.TrimPrefix(err.Error(), "validating root: "))
	}
	return text, nil
}
