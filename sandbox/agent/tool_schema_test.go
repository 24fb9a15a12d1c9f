package agent

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
