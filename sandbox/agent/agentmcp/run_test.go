package agentmcp_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/sandbox/agent/agentmcp"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestCodeCallsServers has code of one step that composes tools of two servers, meets an error and
// loses a server.
func TestCodeCallsServers(t *testing.T) {
	t.Parallel()
	sb := sandboxtest.New(t).Create(t)
	shop := serving(t, agent.MustTool("price", "Gives a price.", func(_ context.Context, in order) (map[string]float64, error) {
		return map[string]float64{in.Item: 1.5}, nil
	}))
	words := connect(t, offering([]*mcp.Tool{
		offered("to-upper", `{"type":"object","properties":{"text":{"type":"string","maxLength":9}},"required":["text"]}`), offered("print", nothing),
	}, func(_ context.Context, p *mcp.CallToolParamsRaw) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{IsError: p.Name == "print", Content: []mcp.Content{&mcp.TextContent{Text: p.Name + string(p.Arguments)}}}, nil
	}))
	tools, err := agentmcp.Tools(t.Context(), shop, &agentmcp.ToolsParams{Prefix: "shop_", Allow: []string{"price"}})
	must.Do(t, err)
	more, err := agentmcp.Tools(t.Context(), words, &agentmcp.ToolsParams{Approve: all})
	must.Do(t, err)
	run, err := agent.Begin(t.Context(), sb, &agent.Params{Tools: append(tools, more...)})
	must.Do(t, err)
	defer run.Close()
	step := func(code string) string {
		t.Helper()
		step, err := run.Exec(t.Context(), code)
		must.Do(t, err)
		if step.Error != nil {
			t.Errorf("%s: %v", code, step.Error)
		}
		return step.Stdout
	}
	got := step(`
print(shop_price(item="fig")["fig"] * 2, to_upper("x"), shop_price.__doc__.split("\n")[0])
for call in (lambda: print_(), lambda: to_upper("x" * 10), lambda: to_upper(7)):
    try:
        call()
    except Exception as e:
        print(type(e).__name__, getattr(e, "type", ""), str(e)[:60])
`)
	want := `3.0 to-upper{"text":"x"} Gives a price.
ToolError MCPError print_: print{}
TypeError  to_upper: wrong arguments: they do not match the tool's sche
TypeError  to_upper: wrong arguments: they do not match the tool's sche
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	must.Do(t, shop.Close())
	if got := step("try:\n    shop_price('fig')\nexcept shop_price.Error as e:\n    print(e.type, to_upper('y'))"); got != "ConnectionError to-upper{\"text\":\"y\"}\n" {
		t.Errorf("without the server: %q", got)
	}
}
