package agentmcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/sandbox/agent/agentmcp"
)

type order struct {
	Item string `py:"item" doc:"its name"`
	N    *int   `py:"n"`
}

// serving returns a client of a server of tools.
func serving(t *testing.T, tools ...agent.Tool) *mcp.ClientSession {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "own"}, nil)
	must.Do(t, agentmcp.AddTools(server, tools...))
	return connect(t, server)
}

// asked returns the answer to a call as its text, and its structured content as JSON.
func asked(t *testing.T, session *mcp.ClientSession, tool, arguments string) (result *mcp.CallToolResult, text, structured string) {
	t.Helper()
	params := &mcp.CallToolParams{Name: tool}
	if arguments != "" {
		params.Arguments = json.RawMessage(arguments)
	}
	result, err := session.CallTool(patience.Context(t), params)
	must.Do(t, err)
	for _, part := range result.Content {
		text += part.(*mcp.TextContent).Text
	}
	if result.StructuredContent != nil {
		document, err := json.Marshal(result.StructuredContent)
		must.Do(t, err)
		structured = string(document)
	}
	return result, text, structured
}

func TestServedToolsAreDescribed(t *testing.T) {
	t.Parallel()
	fromSchema, err := agent.ToolFromSchema("raw", "Raw.", json.RawMessage(`{"type":"object","properties":{"per-page":{"type":"integer"}}}`),
		func(context.Context, json.RawMessage) (any, error) { return nil, nil })
	must.Do(t, err)
	session := serving(t, fromSchema,
		agent.MustTool("buy", "Buys.", func(context.Context, order) (int, error) { return 0, nil }))
	list, err := session.ListTools(t.Context(), nil)
	must.Do(t, err)
	got, err := json.Marshal(list.Tools)
	must.Do(t, err)
	want := `[{"description":"Buys.","inputSchema":{"additionalProperties":false,"properties":{"item":{"description":"its name","type":"string"},"n":{"type":"integer"}},"required":["item"],"type":"object"},"name":"buy"},` +
		`{"description":"Raw.","inputSchema":{"properties":{"per-page":{"type":"integer"}},"type":"object"},"name":"raw"}]`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestServedResults(t *testing.T) {
	t.Parallel()
	session := serving(t,
		agent.MustTool("echo", "", func(_ context.Context, in struct{ X any }) (any, error) { return in.X, nil }),
		agent.MustTool("none", "", func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil }),
		agent.MustTool("letters", "", func(context.Context, struct{}) (map[string]struct{}, error) { return map[string]struct{}{"a": {}}, nil }))
	for _, test := range []struct{ tool, arguments, text, structured string }{
		{"echo", `{"X":"a <b>"}`, "a <b>", ""},
		{"echo", `{"X":{"a":["<",1.5]}}`, `{"a":["<",1.5]}`, `{"a":["\u003c",1.5]}`},
		{"echo", `{"X":[1,2]}`, "[1,2]", "[1,2]"},
		{"echo", `{"X":true}`, "true", "true"},
		{"echo", `{"X":9007199254740993}`, "9007199254740993", "9007199254740992"}, // the client's library
		{"none", ``, "", ""},
		{"letters", `{}`, "{'a'}", ""},
	} {
		result, text, structured := asked(t, session, test.tool, test.arguments)
		if result.IsError || text != test.text || structured != test.structured {
			t.Errorf("%s%s: %t %q %s, want %q %s", test.tool, test.arguments, result.IsError, text, structured, test.text, test.structured)
		}
	}
}

// TestEarlierClients checks that clients of earlier versions get structured content that they know.
func TestEarlierClients(t *testing.T) {
	t.Parallel()
	server := mcp.NewServer(&mcp.Implementation{Name: "own"}, nil)
	must.Do(t, agentmcp.AddTools(server, agent.MustTool("echo", "", func(_ context.Context, in struct{ X any }) (any, error) { return in.X, nil })))
	near, far := mcp.NewInMemoryTransports()
	served, err := server.Connect(t.Context(), far, nil)
	must.Do(t, err)
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(t.Context(), near, &mcp.ClientSessionOptions{ProtocolVersion: "2025-06-18"})
	must.Do(t, err)
	defer func() {
		_ = session.Close()
		_ = served.Wait()
	}()
	for x, want := range map[string]string{`[1]`: "", `{"a":1}`: `{"a":1}`} {
		if _, text, structured := asked(t, session, "echo", `{"X":`+x+`}`); text != x || structured != want {
			t.Errorf("%s: got %s %s", x, text, structured)
		}
	}
}

func TestServedErrors(t *testing.T) {
	t.Parallel()
	refuse := agent.WithApproval(func(_ context.Context, call agent.ToolCall) error {
		if call.Tool != "asks" || call.Run != "" || call.Step != 0 || call.Arguments.String() != "{}" {
			return errors.New("asked wrongly")
		}
		return errors.New("not today")
	})
	session := serving(t,
		agent.MustTool("buy", "", func(_ context.Context, in order) (string, error) { return in.Item, nil }),
		agent.MustTool("fails", "", func(context.Context, struct{}) (int, error) { return 0, errors.New("no luck") }),
		agent.MustTool("panics", "", func(context.Context, struct{}) (int, error) { panic("secret") }),
		agent.MustTool("asks", "", func(context.Context, struct{}) (int, error) { panic("called") }, refuse),
		agent.MustTool("slow", "", func(ctx context.Context, _ struct{}) (int, error) { <-ctx.Done(); return 0, ctx.Err() }, agent.WithToolLimits(agent.ToolLimits{Timeout: 1})),
		agent.MustTool("once", "", func(context.Context, struct{}) (string, error) { return strings.Repeat("x", 9), nil }, agent.WithToolLimits(agent.ToolLimits{MaxCalls: 1, MaxResultBytes: 5})))
	for _, test := range []struct{ tool, arguments, want string }{
		{"buy", `{"item":"x","n":null}`, "x"},
		{"buy", `{"n":1}`, `buy: wrong arguments: "item" is missing`},
		{"buy", `{"item":1}`, `buy: wrong arguments: ["item"]: a Python int cannot be stored in string`},
		{"buy", `{"item":"x","other":1}`, `buy: wrong arguments: there is no parameter "other"`},
		{"buy", `[1]`, "buy: wrong arguments: they have to be a JSON object"},
		{"fails", ``, "fails: no luck"},
		{"panics", ``, "panics: it panicked; the log of the program that runs the tool says more"},
		{"asks", ``, "asks: the call was not approved: not today"},
		{"slow", ``, "slow: it took longer than 1ns"},
		{"once", ``, "the result of once has "},
		{"once", ``, "once: it was called 1 times"},
	} {
		result, text, structured := asked(t, session, test.tool, test.arguments)
		if want := test.want != "x"; result.IsError != want || !strings.HasPrefix(text, test.want) || structured != "" {
			t.Errorf("%s%s: %t, %q, %s, want %q", test.tool, test.arguments, result.IsError, text, structured, test.want)
		}
	}
}

func TestServedCallsAreCancelled(t *testing.T) {
	t.Parallel()
	begun, ended := make(chan struct{}), make(chan error, 1)
	session := serving(t, agent.MustTool("hang", "", func(ctx context.Context, _ struct{}) (int, error) {
		close(begun)
		<-ctx.Done()
		ended <- ctx.Err()
		return 0, ctx.Err()
	}))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-begun
		cancel()
	}()
	_, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "hang"})
	must.Is(t, err, context.Canceled)
	must.Is(t, patience.Receive(t, "the end of the tool", ended), context.Canceled)
}

func TestAddToolsIsChecked(t *testing.T) {
	t.Parallel()
	tool := agent.MustTool("x", "", func(context.Context, struct{}) (int, error) { return 0, nil })
	header, err := agent.ToolFromSchema("h", "", json.RawMessage(`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"a b"}}}`),
		func(context.Context, json.RawMessage) (any, error) { return nil, nil })
	must.Do(t, err)
	for want, tools := range map[string][]agent.Tool{
		`agentmcp: add tools to a server: agent: make a toolbox: the tool "x" has the name of the tool "x"`: {tool, tool},
		"a Tool was not made by":                 {{}},
		"agentmcp: add the tool h to a server: ": {tool, header},
	} {
		if err := agentmcp.AddTools(mcp.NewServer(&mcp.Implementation{Name: "own"}, nil), tools...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}
