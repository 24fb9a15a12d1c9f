package agentmcp

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/state"
)

// FuzzTools checks that tools with any names, texts and schemas are tools that a run can have, or
// are refused.
func FuzzTools(f *testing.F) {
	f.Add("get-x", "get_x", "Gets x.", `{"type":"object","properties":{"a-b":{"type":"string"}}}`)
	f.Add("final_answer", "ﬁnal_answer", "\x1b[31m\u202e", `{"type":"object","properties":{"a":{"$ref":"#/properties/a"}}}`)
	f.Add("__x__", "tool___x__", "", `{"type":"object","required":["b"],"properties":{"b":{"enum":[1,"\u0000"]}}}`)
	f.Add("print", "print_", "", `{"type":["object"]}`)
	f.Fuzz(func(t *testing.T, one, other, description, schema string) {
		var tools []agent.Tool
		var offer []*mcp.Tool
		for _, name := range []string{one, other} {
			offer = append(offer, &mcp.Tool{Name: name, Description: description, InputSchema: json.RawMessage(schema)})
		}
		for i, name := range pythonNames("p_", offer) {
			tool, err := new(caller).tool(name, offer[i], &ToolsParams{})
			if err != nil {
				continue
			}
			tools = append(tools, tool)
			if text := tool.Doc() + tool.Prompt(); strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }) {
				t.Errorf("the text %q has hidden characters", text)
			}
		}
		if _, err := agent.NewToolbox(tools...); err != nil {
			t.Errorf("the names %q and %q: %v", one, other, err)
		}
		for _, prefix := range []string{"", "p_", "e"} {
			names := pythonNames(prefix, offer)
			for _, name := range names {
				if err := state.CheckName(name); err != nil || name == "final_answer" || strings.HasPrefix(name, "_") || !strings.HasPrefix(name, prefix) {
					t.Errorf("the names %q and %q with %q are %q: %v", one, other, prefix, names, err)
				}
			}
			if names[0] == names[1] {
				t.Errorf("the names %q and %q with %q are both %q", one, other, prefix, names[0])
			}
		}
	})
}
