package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/state"
)

// callSchema calls a tool of a schema, which returns its arguments.
func callSchema(t *testing.T, schema string, arguments map[string]any) (string, error) {
	t.Helper()
	var got string
	tool, err := ToolFromSchema("f", "", json.RawMessage(schema), func(_ context.Context, arguments json.RawMessage) (any, error) {
		got = string(arguments)
		return nil, nil
	})
	must.Do(t, err)
	v, err := state.NewValue(arguments)
	must.Do(t, err)
	_, err = tool.call(t.Context(), v)
	return got, err
}

// The check of arguments ends, for any schema with references and any arguments.
func TestChecksOfSchemasEnd(t *testing.T) {
	t.Parallel()
	var doubled strings.Builder
	for i := range 60 {
		fmt.Fprintf(&doubled, `"d%d":{"allOf":[{"$ref":"#/$defs/d%[2]d"},{"$ref":"#/$defs/d%[2]d"}]},`, i, i+1)
	}
	const both = `{"type":"object","properties":{"a":{"$ref":"#/$defs/n"}},"$defs":{"n":{"anyOf":[
		{"type":"array","items":{"$ref":"#/$defs/n"},"minItems":3},{"type":"array","items":{"$ref":"#/$defs/n"}},{"const":"leaf"}]}}}`
	for name, test := range map[string]struct {
		schema string
		value  any
	}{
		"itself":     {`{"type":"object","properties":{"a":{"$ref":"#/properties/a"}}}`, 1},
		"each other": {`{"type":"object","properties":{"a":{"$ref":"#/$defs/x%20y"}},"$defs":{"x y":{"not":{"$ref":"#/$defs/z~1"}},"z/":{"$ref":"#/$defs/x%20y"}}}`, 1},
		"doubled":    {`{"type":"object","properties":{"a":{"$ref":"#/$defs/d0"}},"$defs":{` + doubled.String() + `"d60":{}}}`, 1},
		"nested value": {both, func() any {
			value := any("leaf")
			for range 60 {
				value = []any{value}
			}
			return value
		}()},
		"a long enum":     {`{"type":"object","properties":{"a":{"items":{"enum":[` + strings.Repeat("1,", 9_999) + `1]}}}}`, slices.Repeat([]any{1}, 1000)},
		"other case":      {`{"type":"object","properties":{"a":{"$ref":"#/$defs/n"}},"$defs":{"n":{"$ref":"#/$defs/n","allOF":[]}}}`, 1},
		"a whole pattern": {`{"type":"object","patternProperties":{"":{"$ref":"#"}},"allOf":[{"$ref":"#"}],"properties":{"a":{}}}`, 1},
	} {
		if got, err := callSchema(t, test.schema, map[string]any{"a": test.value}); !errors.Is(err, errEffort) || got != "" {
			t.Errorf("%s: called with %s, %v, want %v", name, got, err, errEffort)
		}
	}
	if got, err := callSchema(t, both, map[string]any{"a": slices.Repeat([]any{"leaf"}, 10_000)}); err != nil || !strings.Contains(got, "leaf") {
		t.Errorf("a long list: called with %.64s, %v", got, err)
	}
}

// Another program's schema cannot make reading and describing it slow.
func TestHostileSchemasAreRead(t *testing.T) {
	t.Parallel()
	tool, err := ToolFromSchema("f", "", json.RawMessage(`{"type":"object","properties":{"a":`+
		strings.Repeat(`{"type":["array","array"],"items":`, 40)+`{}`+strings.Repeat(`}`, 40)+`}}`), nothing)
	must.Do(t, err)
	if doc := tool.Doc(); len(doc) > 1000 {
		t.Errorf("a schema that says each type twice is described in %d bytes", len(doc))
	}
	for schema, want := range map[string]string{
		`{"type":"object","properties":{"a":` + strings.Repeat(`{"allOf":[`, 4000) + `{}` + strings.Repeat(`]}`, 4000) + `}}`: "more than 100 schemas in each other",
		`{"type":"object","properties":{"a":{"$ref":"#other"}}}`:                                                              "only references within it",
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}}}`:                                                           "which is not there",
		`{"type":"object","properties":{"a":{"$dynamicRef":"#b"}}}`:                                                           "$dynamicRef",
		`{"type":"object","properties":{"a":{"$id":"http://host/b","$ref":"#/not"}}}`:                                         "$id",
	} {
		if _, err := ToolFromSchema("f", "", json.RawMessage(schema), nothing); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.100s: error %v, want %q", schema, err, want)
		}
	}
}

// Keywords count only in their own case, and never as names of properties.
func TestKeywordsOfSchemas(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"object","TYPE":"string","Required":["b"],"properties":{"a":{"AllOf":[false],"$Ref":"x"},
		"$id":{},"Properties":{}},"Properties":{"b":{}}}`
	got, err := callSchema(t, schema, map[string]any{"a": 1, "_id": 2, "Properties": 3})
	if want := `{"$id":2,"Properties":3,"a":1}`; err != nil || got != want {
		t.Errorf("called with %s, %v, want %s", got, err, want)
	}
}

// Decisions of a pattern that Go does not know are left to the tool: nothing is refused
// because of it.
func TestForeignPatterns(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{
		`{"patternProperties":{"^(?!_)":{"type":"string"},"^y":{}},"additionalProperties":false}`,
		`{"not":{"properties":{"x":{"pattern":"^(?=_)"}}}}`,
		`{"oneOf":[{"properties":{"x":{"pattern":"^(?=_)"}}},{"properties":{"x":{"pattern":"^(?!_)"}}}]}`,
		`{"if":{"properties":{"x":{"pattern":"^(?=_)"}}},"then":false}`,
		`{"const":{"x":"y","pattern":"(?!"}}`,
	} {
		value := map[string]any{"x": "y"}
		if strings.Contains(schema, "const") {
			value["pattern"] = "(?!"
		}
		if got, err := callSchema(t, `{"type":"object","properties":{"a":`+schema+`}}`, map[string]any{"a": value}); err != nil || got == "" {
			t.Errorf("%s: %v", schema, err)
		}
	}
}
