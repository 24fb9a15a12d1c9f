package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/e2bctl/e2bctl/internal/must"
)

// issues is the schema of a tool that another program offers.
const issues = `{
	"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "additionalProperties": false,
	"properties": {
		"state": {"type": "string", "enum": ["open", "closed"], "description": "which ones"},
		"repo": {"type": "string", "minLength": 1, "pattern": "^(?!-)"},
		"from": {"type": ["string", "null"]},
		"per-page": {"type": "integer", "minimum": 1},
		"labels": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}, "color": {}}}},
		"2fa": {"$ref": "#/$defs/flag"},
		"rest": {}
	},
	"required": ["repo", "per-page"],
	"$defs": {"flag": {"type": "boolean"}}
}`

func nothing(context.Context, json.RawMessage) (any, error) { return nil, nil }

func TestToolFromSchemaIsDescribed(t *testing.T) {
	t.Parallel()
	tool, err := ToolFromSchema("issues", "Lists issues.", json.RawMessage(issues), nothing)
	must.Do(t, err)
	const signature = "issues(repo: str, per_page: int, state: str = None, from_: str | None = None, labels: list[dict] = None, _2fa: Any = None, rest: Any = None) -> Any"
	if got := tool.Signature(); got != signature {
		t.Errorf("%s, want %s", got, signature)
	}
	want := "Lists issues.\n\nArgs:\n    repo (str)\n    per_page (int)\n    state (str, one of \"open\",\"closed\", optional): which ones\n" +
		"    from_ (str | None, optional)\n    labels (list[{'color': Any, 'name': str}], optional)\n    _2fa (Any, optional)\n    rest (Any, optional)\n\nReturns:\n    Any"
	if diff := cmp.Diff(want, tool.Doc()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := string(tool.Schema()); got != issues {
		t.Errorf("Schema is %s, want it as it was given", got)
	}
}

func TestWrongSchemas(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		``:                    "unexpected end of JSON input",
		`{`:                   "unexpected end of JSON input",
		`[]`:                  "cannot unmarshal",
		`true`:                `its type has to be "object"`,
		`{}`:                  `its type has to be "object"`,
		`{"type":"string"}`:   `its type has to be "object"`,
		`{"type":["object"]}`: `its type has to be "object"`,
		`{"type":"object","properties":{"a":{"$ref":"elsewhere.json"}}}`: "elsewhere.json",
		`{"type":"object","properties":{"a-b":{},"a.b":{}}}`:             `"a-b" and "a.b" would both be the parameter a_b`,
		`{"type":"object","properties":{"__class__":{}}}`:                "reserved by Python",
		`{"type":"object","properties":{"a":{"minLength":"x"}}}`:         "unmarshaled into an int",
	} {
		if _, err := ToolFromSchema("f", "", json.RawMessage(schema), nothing); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", schema, err, want)
		}
	}
	if _, err := ToolFromSchema("a b", "", json.RawMessage(`{"type":"object"}`), nothing); err == nil {
		t.Error("no error for a wrong name")
	}
	if _, err := ToolFromSchema("f", "", json.RawMessage(`{"type":"object"}`), nothing); err != nil {
		t.Errorf("an object without properties: %v", err)
	}
}

// Arguments of code arrive as JSON of the schema, and those that do not match it do not
// arrive.
func TestToolFromSchemaIsCalled(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		var rs runs
		var got string
		echo, err := ToolFromSchema("echo", "", json.RawMessage(issues), func(_ context.Context, arguments json.RawMessage) (any, error) {
			got = string(arguments)
			switch {
			case strings.Contains(got, "raw"):
				return json.RawMessage(`{"n": 9007199254740993, "f": 1.0}`), nil
			case strings.Contains(got, "broken"):
				return json.RawMessage(`{`), nil
			case strings.Contains(got, "fails"):
				return nil, errors.New("no luck")
			}
			return "done", nil
		})
		must.Do(t, err)
		r := h.begin(t, &rs, Params{Tools: []Tool{echo}})
		for _, test := range []struct{ call, result, sent string }{
			{`echo("raw", 1)`, "{'n': 9007199254740993, 'f': 1.0}", `{"per-page":1,"repo":"raw"}`},
			{`echo("r", 9007199254740993)`, "'done'", `{"per-page":9007199254740993,"repo":"r"}`},
			{`echo(repo="r", per_page=2, from_="x", _2fa=True, state=None)`, "'done'", `{"2fa":true,"from":"x","per-page":2,"repo":"r"}`},
			{`echo("r", 1, rest={"t": (1, 2.5, None), "b": b"ab"})`, "'done'", `{"per-page":1,"repo":"r","rest":{"b":"YWI=","t":[1,2.5,null]}}`},
			{`echo("r", 1, rest=__import__("datetime").date(2026, 11, 27))`, "'done'", `{"per-page":1,"repo":"r","rest":"2026-11-27"}`},
			{`echo("r", 1, rest=__import__("collections").OrderedDict(a=1))`, "'done'", `{"per-page":1,"repo":"r","rest":{"a":1}}`},
			{`echo("fails", 1)`, "ToolError: echo: no luck: errors.errorStringFalse", `{"per-page":1,"repo":"fails"}`},
			{`echo("broken", 1)`, "ToolError: echo: the tool's result has no Python form", `{"per-page":1,"repo":"broken"}`},
			{`echo("", 1)`, "TypeError: echo: wrong arguments: they do not match the tool's schema", ""},
			{`echo("r", 0)`, "TypeError: echo: wrong arguments: they do not match the tool's schema", ""},
			{`echo("r", 1.5)`, "TypeError: echo: wrong arguments: they do not match the tool's schema", ""},
			{`echo("r", 1, _2fa="yes")`, "TypeError: echo: wrong arguments: they do not match the tool's schema", ""},
			{`echo("r", 1, "ajar")`, "TypeError: echo: wrong arguments: they do not match the tool's schema", ""},
			{`echo("r")`, "TypeError", ""},
			{`echo("r", 1, other=1)`, "TypeError", ""},
			{`echo("r", 1, rest={1: 2})`, "TypeError: echo: wrong arguments: rest: the keys of a dict have to be str", ""},
			{`echo("r", 1, rest=[{1, 2}])`, "TypeError: echo: wrong arguments: rest: JSON has no Set: convert it", ""},
			{`echo("r", 1, rest=float("nan"))`, "TypeError: echo: wrong arguments: rest: JSON has no NaN", ""},
			{`echo("r", 1, rest=print)`, "TypeError: echo: wrong arguments", ""},
		} {
			got = ""
			if result := text(t, r, caught(test.call)); !strings.HasPrefix(result, test.result) || got != test.sent {
				t.Errorf("%s: result %q, sent %s, want %q, %s", test.call, result, got, test.result, test.sent)
			}
		}
	})
}

// TestTidiedSchemas checks the parts of a schema that are removed before it is used, and that nothing else is: keywords in
// another case, patterns that Go does not know, and the keywords that would refuse values because of such a pattern.
func TestTidiedSchemas(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		schema, want string
		looser       bool
	}{
		{`true`, `true`, false},
		{`{"type":"object","title":"t","Title":"T"}`, `{"type":"object","title":"t","Title":"T"}`, false},
		{`{"$ID":"a","$id":"b","$REF":"c","CONST":1,"Contains":{},"contains":{"TYPE":1}}`, `{"$id":"b","contains":{}}`, false},
		{`{"properties":{"TYPE":{"TYPE":1}},"$defs":{"Enum":{"Enum":[]}}}`, `{"properties":{"TYPE":{}},"$defs":{"Enum":{}}}`, false},
		{`{"pattern":"^a"}`, `{"pattern":"^a"}`, false},
		{`{"pattern":"(?!a)"}`, `{}`, true},
		{`{"pattern":5}`, `{"pattern":5}`, false},
		{`{"patternProperties":{"^a":{}},"additionalProperties":false}`, `{"patternProperties":{"^a":{}},"additionalProperties":false}`, false},
		{
			`{"patternProperties":{"^a":{},"(?!a)":{}},"additionalProperties":false,"unevaluatedProperties":false,"properties":{}}`,
			`{"patternProperties":{"^a":{}},"properties":{}}`, true,
		},
		{`{"not":{"pattern":"^a"},"if":{"pattern":"^a"},"oneOf":[{"pattern":"^a"}]}`, `{"not":{"pattern":"^a"},"if":{"pattern":"^a"},"oneOf":[{"pattern":"^a"}]}`, false},
		{`{"not":{"pattern":"(?!a)"},"type":"string"}`, `{"type":"string"}`, true},
		{`{"if":{"allOf":[{"pattern":"(?!a)"},{}]},"then":false}`, `{"then":false}`, true},
		{`{"oneOf":[{},{"pattern":"(?!a)"}]}`, `{}`, true},
		{`{"anyOf":[{"pattern":"(?!a)"},{"type":"string"}]}`, `{"anyOf":[{},{"type":"string"}]}`, true},
		{`{"properties":{"a":{"items":{"pattern":"(?!a)"}},"b":{}}}`, `{"properties":{"a":{"items":{}},"b":{}}}`, true},
		{`{"not":{"properties":{"a":{"pattern":"(?!a)"}}},"then":{"not":{}}}`, `{"then":{"not":{}}}`, true},
	} {
		var schema, want any
		must.Do(t, errors.Join(json.Unmarshal([]byte(tt.schema), &schema), json.Unmarshal([]byte(tt.want), &want)))
		looser, err := (&plainSchema{targets: map[string]any{}}).tidy(schema, 0)
		if diff := cmp.Diff(want, schema); diff != "" || looser != tt.looser || err != nil {
			t.Errorf("%s: looser: %v, error %v, want looser: %v (-want +got):\n%s", tt.schema, looser, err, tt.looser, diff)
		}
	}
}

// TestReferencesInSchemas checks the references that are followed, the depth up to which schemas are nested, and the
// nearest ones that are refused.
func TestReferencesInSchemas(t *testing.T) {
	t.Parallel()
	nested := func(n int) string { return strings.Repeat(`{"not":`, n) + "{}" + strings.Repeat("}", n) }
	for schema, want := range map[string]string{
		`{"$id":"http://host/a","$ref":"#"}`:              "",
		`{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#"}}}`: "",
		`{"$ref":5}`:                        "",
		`{"$ref":"#a"}`:                     "only references within it",
		`{"$ref":""}`:                       "only references within it",
		`{"$ref":"a#/b"}`:                   "only references within it",
		`{"items":{"$id":"http://host/a"}}`: "a schema in it has an $id",
		`{"$dynamicRef":"#a"}`:              "it has a $dynamicRef",
		`{"allOf":[{"anyOf":[{"$ref":"#/$defs/a"}]}],"$defs":{}}`: "which is not there",
		nested(maxSchemaLevels):                                   "",
		nested(maxSchemaLevels + 1):                               "more than 100 schemas in each other",
	} {
		var loose any
		must.Do(t, json.Unmarshal([]byte(schema), &loose))
		p, err := newPlainSchema(loose)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: got error %v, want %q", schema, err, want)
		}
		if err != nil {
			continue
		}
		for ref, target := range p.targets {
			if target == nil {
				t.Errorf("%.80s: the reference %s has no target", schema, ref)
			}
		}
	}
}

// TestTypesOfSchemas checks the Python type that describes a schema: its parts count only for the type that they belong to.
func TestTypesOfSchemas(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		`{}`:                                  {"Any", "Any"},
		`{"type":"integer"}`:                  {"int", "int"},
		`{"type":["number","null","number"]}`: {"float | None", "float | None"},
		`{"type":"thing"}`:                    {"Any", "Any"},
		`{"type":"array"}`:                    {"list", "list"},
		`{"type":"string","items":{"type":"string"}}`:                                 {"str", "str"},
		`{"type":"array","items":{"type":"boolean"}}`:                                 {"list[bool]", "list[bool]"},
		`{"type":"object"}`:                                                           {"dict", "dict"},
		`{"type":"string","properties":{"a":{}}}`:                                     {"str", "str"},
		`{"type":"object","properties":{"b":{"type":"null"},"a":{}}}`:                 {"dict", "{'a': Any, 'b': None}"},
		`{"type":["array","object"],"items":{"type":"object","properties":{"a":{}}}}`: {"list[dict] | dict", "list[{'a': Any}] | dict"},
		`{"enum":[1,"a"]}`:                                                            {"Any", `Any, one of 1,"a"`},
		`{"type":"array","items":{"enum":[1]},"properties":{"a":{}}}`:                 {"list[Any]", "list[Any, one of 1]"},
		`{"properties":{"a":{}},"items":{"type":"string"}}`:                           {"Any", "Any"},
	} {
		var s jsonschema.Schema
		must.Do(t, json.Unmarshal([]byte(text), &s))
		if got := schemaType(&s); got.annotation != want[0] || got.detail != want[1] {
			t.Errorf("%s: got %q and %q, want %q", text, got.annotation, got.detail, want)
		}
	}
}

// TestPropertyNames checks the order of properties, and the texts that have none.
func TestPropertyNames(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{}`:                "[]",
		`{"properties":{}}`: "[]",
		`{"properties":{"b":{},"a":{"c":[]},"b":1}}`: "[b a]",
		`{"Properties":{"a":{}}}`:                    "[]",
		`[]`:                                         "error",
		`{"properties":[1]}`:                         "error",
		`{"properties":`:                             "error",
	} {
		names, err := propertyNames(json.RawMessage(text))
		got := fmt.Sprint(names)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%s: got %s and error %v, want %s", text, names, err, want)
		}
	}
	for property, want := range map[string]string{"a": "a", "a-b c": "a_b_c", "é1": "é1", "class": "class_", "1": "_1", "_": "_", "": "_", "list": "list", "№": "_"} {
		if got := pythonName(property); got != want {
			t.Errorf("the parameter of %q is %q, want %q", property, got, want)
		}
	}
}

// TestArgumentsOfSchemas checks the arguments that have no JSON.
func TestArgumentsOfSchemas(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"object","properties":{"a":{},"b-c":{"type":"integer"}}}`
	for want, arguments := range map[string]any{
		`{"a":[1,"x"],"b-c":2}`: map[string]any{"a": []any{1, "x"}, "b_c": 2},
		`{}`:                    map[string]any{},
		"a: JSON has no NaN":    map[string]any{"a": math.NaN()},
		"do not match the tool's schema: validating /properties/b-c": map[string]any{"b_c": "x"},
		"state: ": []any{1},
	} {
		tool, err := ToolFromSchema("f", "", json.RawMessage(schema), func(_ context.Context, arguments json.RawMessage) (any, error) { return arguments, nil })
		must.Do(t, err)
		v, err := tool.call(t.Context(), mustValue(t, arguments))
		_, wrong := errors.AsType[*argumentError](err)
		got := strings.TrimSuffix(strings.TrimPrefix(string(v.Bytes()), `{"v":1,"value":`), "}")
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) || wrong == strings.HasPrefix(want, "{") {
			t.Errorf("got %s, error %v, want %s", got, err, want)
		}
	}
}
