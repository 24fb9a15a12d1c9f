package agent

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxSchemaLevels limits the nesting of schemas in a schema. The time to parse a schema grows
// with the square of its depth.
const maxSchemaLevels = 100

// maxCheckLevels limits the depth of a value's check, because a schema may refer to itself.
const maxCheckLevels = 1000

// The check of a call's arguments may apply checkBase schemas, and checkPerByte more schemas for
// each byte of the arguments. Without this limit, a few references or a nested value could make the
// check endless.
const checkBase, checkPerByte = 100_000, 32

// These are keywords that contain schemas, grouped by the values to which the schemas apply.
var (
	toSameValue = []string{"not", "if", "then", "else", "allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies"}
	toFields    = []string{"properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames"}
	toItems     = []string{"items", "prefixItems", "additionalItems", "unevaluatedItems", "contains"}
	toNothing   = []string{"$defs", "definitions", "contentSchema"}
	withSchemas = slices.Concat(toSameValue, toFields, toItems, toNothing)
	// withNames lists keywords whose value is an object that maps names to schemas. The object
	// itself is not a schema.
	withNames = []string{"dependentSchemas", "dependencies", "properties", "patternProperties", "$defs", "definitions"}
	// keywords lists all keywords that this file reads.
	keywords = append([]string{"$id", "$ref", "$dynamicRef", "pattern", "type", "required", "enum", "const"}, withSchemas...)
)

// plainSchema is a schema decoded by encoding/json.
type plainSchema struct {
	root    any
	targets map[string]any // the schemas to which references point, keyed by reference
}

// newPlainSchema returns the plainSchema of a decoded schema. It changes the schema as
// [plainSchema.tidy] describes.
func newPlainSchema(root any) (*plainSchema, error) {
	p := &plainSchema{root, map[string]any{}}
	if _, err := p.tidy(root, 0); err != nil {
		return nil, err
	}
	for ref := range p.targets {
		target, ok := follow(root, ref)
		if !ok {
			return nil, fmt.Errorf("it refers to %.128q, which is not there", ref)
		}
		p.targets[ref] = target
	}
	return p, nil
}

// tidy removes two things from a schema: keys that encoding/json would mistake for a keyword
// because it ignores case, and patterns that Go cannot compile. There are such patterns because
// JSON Schema uses JavaScript's patterns, which can look ahead. If a keyword depends on a removed
// pattern, tidy also removes the keyword, so that it refuses no value. looser reports whether the
// schema now allows more values than before.
func (p *plainSchema) tidy(schema any, level int) (looser bool, err error) {
	object, ok := schema.(map[string]any)
	switch {
	case level > maxSchemaLevels:
		return false, fmt.Errorf("it has more than %d schemas in each other", maxSchemaLevels)
	case !ok:
		return false, nil
	}
	for key := range object {
		if i := slices.IndexFunc(keywords, func(word string) bool { return strings.EqualFold(word, key) }); i >= 0 && keywords[i] != key {
			delete(object, key)
		}
	}
	if err := p.reference(object, level); err != nil {
		return false, err
	}
	if pattern, ok := object["pattern"].(string); ok && foreign(pattern) {
		delete(object, "pattern")
		looser = true
	}
	if patterns, ok := object["patternProperties"].(map[string]any); ok && slices.ContainsFunc(slices.Collect(maps.Keys(patterns)), foreign) {
		maps.DeleteFunc(patterns, func(pattern string, _ any) bool { return foreign(pattern) })
		delete(object, "additionalProperties")
		delete(object, "unevaluatedProperties")
		looser = true
	}
	for _, keyword := range withSchemas {
		for _, part := range partsOf(object, keyword) {
			partLooser, err := p.tidy(part, level+1)
			if err != nil {
				return false, err
			}
			if looser = looser || partLooser; partLooser && slices.Contains([]string{"not", "if", "oneOf"}, keyword) {
				delete(object, keyword)
			}
		}
	}
	return looser, nil
}

// reference records the reference in a schema, if there is one. It returns an error for references
// that are not followed.
func (p *plainSchema) reference(object map[string]any, level int) error {
	if dynamic, ok := object["$dynamicRef"]; ok {
		return fmt.Errorf("it has a $dynamicRef, %.128q: only a $ref is followed", fmt.Sprint(dynamic))
	}
	if id, ok := object["$id"]; ok && level > 0 {
		return fmt.Errorf("a schema in it has an $id, %.128q: references to it are not followed", fmt.Sprint(id))
	}
	ref, ok := object["$ref"].(string)
	if !ok {
		return nil
	}
	if ref != "#" && !strings.HasPrefix(ref, "#/") {
		return fmt.Errorf(`it refers to %.128q: only references within it are followed, such as "#/$defs/name"`, ref)
	}
	p.targets[ref] = nil
	return nil
}

func foreign(pattern string) bool {
	_, err := regexp.Compile(pattern)
	return err != nil
}

// partsOf returns the schemas that the value of a keyword contains. object is the schema that has
// the keyword.
func partsOf(object map[string]any, keyword string) []any {
	switch parts := object[keyword].(type) {
	case []any:
		return parts
	case map[string]any:
		if slices.Contains(withNames, keyword) {
			return slices.Collect(maps.Values(parts))
		}
		return []any{parts}
	}
	return nil
}

// follow returns the target of a JSON pointer such as "#/$defs/name".
func follow(root any, ref string) (any, bool) {
	pointer, err := url.PathUnescape(ref)
	if err != nil {
		return nil, false
	}
	for _, token := range strings.Split(pointer, "/")[1:] {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		switch at := root.(type) {
		case map[string]any:
			root = at[token]
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(at) {
				return nil, false
			}
			root = at[i]
		default:
			return nil, false
		}
	}
	return root, root != nil
}

var errEffort = errors.New("they are too large or too deeply nested to be checked against the tool's schema")

// effort counts the schemas that the check of a value applies. Schemas that do not match also
// count.
type effort struct {
	targets map[string]any
	left    int
}

func (e *effort) apply(schema, value any, level int) error {
	object, ok := schema.(map[string]any)
	e.left--
	switch {
	case e.left < 0 || level > maxCheckLevels:
		return errEffort
	case !ok: // true or false
		return nil
	}
	if options, ok := object["enum"].([]any); ok {
		e.left -= len(options)
	}
	if ref, ok := object["$ref"].(string); ok {
		if err := e.apply(e.targets[ref], value, level+1); err != nil {
			return err
		}
	}
	if err := e.applyAll(object, toSameValue, "", value, level); err != nil {
		return err
	}
	switch value := value.(type) {
	case map[string]any:
		for name, field := range value {
			if err := e.applyAll(object, toFields, name, field, level); err != nil {
				return err
			}
		}
	case []any:
		for i, item := range value {
			if err := e.applyAll(object, toItems, strconv.Itoa(i), item, level); err != nil {
				return err
			}
		}
	}
	return nil
}

// applyAll applies the schemas of keywords to value. place is the name of the field or the index of
// the item that has this value. If place is empty, value is the whole value.
func (e *effort) applyAll(object map[string]any, words []string, place string, value any, level int) error {
	for _, keyword := range words {
		for _, part := range partsFor(object, keyword, place) {
			if err := e.apply(part, value, level+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// partsFor returns the schemas of a keyword that apply to the field or item at place. "properties"
// and lists of items contain one schema for each place.
func partsFor(object map[string]any, keyword, place string) []any {
	switch parts := object[keyword].(type) {
	case []any:
		if place == "" {
			return parts
		}
		if i, err := strconv.Atoi(place); err == nil && i < len(parts) {
			return parts[i : i+1]
		}
		return nil
	case map[string]any:
		if keyword == "properties" {
			return []any{parts[place]}
		}
	}
	return partsOf(object, keyword)
}
