package agentmcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/sandbox/agent/agentmcp"
)

const nothing = `{"type":"object"}`

func TestToolsAreNamed(t *testing.T) {
	t.Parallel()
	var list []*mcp.Tool
	for _, name := range []string{
		"get-x", "get_x", "get.x", "get_x_2", "print", "final_answer", "ﬁnal_answer", "class", "2fa", "_", "__class__", "", "搜索", "a\x00b\n", "In",
	} {
		list = append(list, offered(name, nothing))
	}
	session := connect(t, offering(list, nil))
	tools, err := agentmcp.Tools(t.Context(), session, &agentmcp.ToolsParams{Approve: all})
	must.Do(t, err)
	want := []string{
		"get_x_3", "get_x", "get_x_4", "get_x_2", "print_", "final_answer_", "final_answer__2", "class_", "tool_2fa", "tool__", "tool___class__", "tool_", "搜索", "a_b_", "In_",
	}
	if diff := cmp.Diff(want, names(tools)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	tools, err = agentmcp.Tools(t.Context(), session, &agentmcp.ToolsParams{Prefix: "s_", Allow: []string{"print", "get.x"}})
	must.Do(t, err)
	if diff := cmp.Diff([]string{"s_get_x_4", "s_print"}, names(tools)); diff != "" {
		t.Errorf("two that are allowed (-want +got):\n%s", diff)
	}
}

func TestToolsParamsAreChecked(t *testing.T) {
	t.Parallel()
	session := connect(t, offering([]*mcp.Tool{offered("a", nothing)}, nil))
	for want, p := range map[string]*agentmcp.ToolsParams{
		"no tool would be allowed":                 nil,
		`it has no tool "b", which was to be`:      {Allow: []string{"a", "b"}},
		`the prefix "_" cannot begin the name of`:  {Prefix: "_", Approve: all},
		`the prefix "a-" cannot begin the name of`: {Prefix: "a-", Approve: all},
	} {
		if tools, err := agentmcp.Tools(t.Context(), session, p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, %v, want an error with %q", p, names(tools), err, want)
		}
	}
}

// TestToolsOfHostileServers has lists that would be too much, or would deceive.
func TestToolsOfHostileServers(t *testing.T) {
	t.Parallel()
	many := make([]*mcp.Tool, 1001)
	large := make([]*mcp.Tool, 20)
	for i := range many {
		many[i] = offered("a", nothing)
	}
	for i := range large {
		large[i] = &mcp.Tool{Name: "a", Description: strings.Repeat("x", 1<<20), InputSchema: json.RawMessage(nothing)}
	}
	property := func(schema string) string { return `{"type":"object","properties":{"a":` + schema + `}}` }
	for want, list := range map[string][]*mcp.Tool{
		"more than 1000 tools":                             many,
		"the list has more than 16777216 bytes":            large,
		"its name has 300 bytes":                           {offered(strings.Repeat("a", 300), nothing)},
		"bytes, more than 262144":                          {offered("a", property(`{"description":"`+strings.Repeat("x", 300<<10)+`"}`))},
		"only references within it":                        {offered("a", property(`{"$ref":"http://127.0.0.1:1/x"}`))},
		"more than 100 schemas in each other":              {offered("a", property(strings.Repeat(`{"items":`, 400)+`{}`+strings.Repeat(`}`, 400)))},
		`its type has to be "object"`:                      {offered("a", `{"type":"string"}`)},
		`would both be the parameter a_b`:                  {offered("a", `{"type":"object","properties":{"a-b":{},"a.b":{}}}`)},
		"the server lists it twice":                        {offered("a", nothing), offered("b", nothing), offered("a", nothing)},
		"is not there":                                     {offered("a", property(`{"$ref":"#/$defs/x"}`))},
		`take the tool "a" of the server`:                  {offered("a", `[1]`)},
		`agent: the schema of the tool a: read it: cannot`: {offered("a", property(`{"minLength":"x"}`))},
	} {
		session := connect(t, offering(list, nil))
		if tools, err := agentmcp.Tools(t.Context(), session, &agentmcp.ToolsParams{Approve: all}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %.200v, want an error with %q", names(tools), err, want)
		}
	}
	endless := offering(nil, nil)
	pages := 0
	endless.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
			result, err := next(ctx, method, request)
			if page, ok := result.(*mcp.ListToolsResult); ok {
				pages++
				page.NextCursor = strings.Repeat("x", pages)
			}
			return result, err
		}
	})
	if _, err := agentmcp.Tools(t.Context(), connect(t, endless), &agentmcp.ToolsParams{Approve: all}); err == nil || !strings.Contains(err.Error(), "more than 1000 pages") {
		t.Errorf("pages without end: %v after %d", err, pages)
	}
}

func TestUnusableToolsAreNamed(t *testing.T) {
	t.Parallel()
	var left []string
	session := connect(t, offering([]*mcp.Tool{offered("a", `{"type":"array"}`), offered("b", nothing), offered("b", nothing)}, nil))
	tools, err := agentmcp.Tools(t.Context(), session, &agentmcp.ToolsParams{Approve: all, Unusable: func(tool string, err error) {
		left = append(left, tool+": "+err.Error())
	}})
	must.Do(t, err)
	if len(left) != 2 || !strings.Contains(left[0], `a: agent: the schema`) || left[1] != "b: the server lists it twice" {
		t.Errorf("left out: %q", left)
	}
	if diff := cmp.Diff([]string{"b"}, names(tools)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestDescriptionsShowThemselves checks that descriptions for a model have no characters that are
// invisible to people.
func TestDescriptionsShowThemselves(t *testing.T) {
	t.Parallel()
	tool := offered("a", `{"type":"object","properties":{"p":{"description":"the\u001b[31m\u202e p","enum":["\u200bx"]},"q":{"type":"object","properties":{"k\u0007\u2066":{}}}}}`)
	tool.Description = "Reads\r\nmail.\x00\u200b\U000e0041" + strings.Repeat(" more", 10_000)
	tools, err := agentmcp.Tools(t.Context(), connect(t, offering([]*mcp.Tool{tool}, nil)), &agentmcp.ToolsParams{Approve: all})
	must.Do(t, err)
	doc := tools[0].Doc()
	if len(doc) > 20<<10 || !strings.HasPrefix(doc, "Reads\nmail. more") || !strings.Contains(doc, "p (Any, one of \"x\", optional): the[31m p\n") {
		t.Errorf("%d bytes: %.100q … %q", len(doc), doc, doc[max(0, len(doc)-200):])
	}
	if at := strings.IndexAny(doc+tools[0].Prompt()+tools[0].Description(), "\r\x00\x07\x1b\u200b\u202e\u2066\U000e0041"); at >= 0 {
		t.Errorf("there is a hidden character at %d of %q", at, doc)
	}
}

// TestParametersAreOrdered checks the order of parameters, which positional arguments have.
func TestParametersAreOrdered(t *testing.T) {
	t.Parallel()
	tool := offered("a", `{"type":"object","properties":{"z":{"type":"string"},"y":{"type":"integer"},"b":{},"a":{}},"required":["z","y"]}`)
	tools, err := agentmcp.Tools(t.Context(), connect(t, offering([]*mcp.Tool{tool}, nil)), &agentmcp.ToolsParams{Approve: all})
	must.Do(t, err)
	if got, want := tools[0].Signature(), "a(y: int, z: str, a: Any = None, b: Any = None) -> Any"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestResults(t *testing.T) {
	t.Parallel()
	text := func(text string) mcp.Content { return &mcp.TextContent{Text: text} }
	image := &mcp.ImageContent{MIMEType: "image/png", Data: []byte("png")}
	const imageDict = `{"data":"cG5n","mimeType":"image/png","type":"image"}`
	for name, test := range map[string]struct {
		result *mcp.CallToolResult
		want   string
	}{
		"nothing":          {&mcp.CallToolResult{}, `null`},
		"text":             {&mcp.CallToolResult{Content: []mcp.Content{text("a <b>")}}, `"a <b>"`},
		"empty text":       {&mcp.CallToolResult{Content: []mcp.Content{text("")}}, `""`},
		"texts":            {&mcp.CallToolResult{Content: []mcp.Content{text("a"), text("b")}}, `"a\nb"`},
		"text of JSON":     {&mcp.CallToolResult{Content: []mcp.Content{text("[1]")}}, `"[1]"`},
		"structured":       {&mcp.CallToolResult{Content: []mcp.Content{text("words")}, StructuredContent: map[string]any{"a": []any{1, nil}}}, `{"a":[1,null]}`},
		"structured list":  {&mcp.CallToolResult{StructuredContent: []any{true}}, `[true]`},
		"exact number":     {&mcp.CallToolResult{Content: []mcp.Content{text(`{"id": 9007199254740993}`)}, StructuredContent: json.RawMessage(`{"id":9007199254740993}`)}, `{"id":9007199254740993}`},
		"text that lies":   {&mcp.CallToolResult{Content: []mcp.Content{text(`{"id": 2}`)}, StructuredContent: json.RawMessage(`{"id":1}`)}, `{"id":1}`},
		"image":            {&mcp.CallToolResult{Content: []mcp.Content{image}}, `[` + imageDict + `]`},
		"text and image":   {&mcp.CallToolResult{Content: []mcp.Content{text("a"), image, text("b")}}, `["a","b",` + imageDict + `]`},
		"structured image": {&mcp.CallToolResult{Content: []mcp.Content{image, text("a")}, StructuredContent: map[string]any{}}, `[{},` + imageDict + `]`},
		"link":             {&mcp.CallToolResult{Content: []mcp.Content{&mcp.ResourceLink{URI: "file:///x", Name: "x"}}}, `[{"name":"x","type":"resource_link","uri":"file:///x"}]`},
		"error":            {&mcp.CallToolResult{IsError: true, Content: []mcp.Content{text("no"), text("luck")}, StructuredContent: map[string]any{}}, "MCPError: a: no\nluck"},
		"error, no reason": {&mcp.CallToolResult{IsError: true}, "MCPError: a: the tool failed and gave no reason"},
		"too large":        {&mcp.CallToolResult{Content: []mcp.Content{text(strings.Repeat("x", 2000))}}, "LimitError: the result of a has 2018 bytes, more than 1000"},
	} {
		session := connect(t, offering([]*mcp.Tool{offered("a", nothing)}, func(context.Context, *mcp.CallToolParamsRaw) (*mcp.CallToolResult, error) { return test.result, nil }))
		tools, err := agentmcp.Tools(t.Context(), session, &agentmcp.ToolsParams{Allow: []string{"a"}, Limits: agent.ToolLimits{MaxResultBytes: 1000}})
		must.Do(t, err)
		if got := called(t, tools, "a", ""); got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}

// TestCallsAreChecked checks which calls reach the server, under which name, and which errors it
// may answer.
func TestCallsAreChecked(t *testing.T) {
	t.Parallel()
	var sent []string
	schema := `{"type":"object","properties":{"per-page":{"type":"integer","minimum":1}},"required":["per-page"]}`
	readOnly := offered("odd-name", schema)
	readOnly.Annotations = &mcp.ToolAnnotations{ReadOnlyHint: true}
	session := connect(t, offering([]*mcp.Tool{readOnly, offered("free", nothing), offered("gone", nothing)}, func(_ context.Context, p *mcp.CallToolParamsRaw) (*mcp.CallToolResult, error) {
		sent = append(sent, p.Name+string(p.Arguments))
		if p.Name == "gone" {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "there is no such tool"}
		}
		return &mcp.CallToolResult{}, nil
	}))
	var asked []string
	tools, err := agentmcp.Tools(t.Context(), session, &agentmcp.ToolsParams{
		Prefix: "p_", Allow: []string{"free", "gone"}, Limits: agent.ToolLimits{MaxCalls: 4},
		Approve: func(_ context.Context, tool string, call agent.ToolCall) error {
			asked = append(asked, tool+" "+call.Tool+" "+call.Arguments.String())
			if strings.Contains(call.Arguments.String(), "13") {
				return errors.New("not 13")
			}
			return nil
		},
	})
	must.Do(t, err)
	box, err := agent.NewToolbox(tools...)
	must.Do(t, err)
	for _, test := range []struct{ tool, arguments, want string }{
		{"p_odd_name", `{"per-page":12}`, ""},
		{"p_odd_name", `{"per-page":13}`, "p_odd_name: the call was not approved: not 13"},
		{"p_odd_name", `{"per-page":0}`, "p_odd_name: wrong arguments: they do not match the tool's schema"},
		{"p_odd_name", `{}`, `p_odd_name: wrong arguments: "per_page" is missing`},
		{"p_odd_name", `{"per-page":12}`, ""},
		{"p_odd_name", `{"per-page":12}`, "p_odd_name: it was called 4 times"},
		{"p_free", ``, ""},
		{"p_gone", ``, "p_gone: there is no such tool"},
	} {
		_, err := box.Call(t.Context(), test.tool, json.RawMessage(test.arguments))
		if (err == nil) != (test.want == "") || err != nil && !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s%s: %v, want %q", test.tool, test.arguments, err, test.want)
		}
	}
	if diff := cmp.Diff([]string{`odd-name{"per-page":12}`, `odd-name{"per-page":12}`, "free{}", "gone{}"}, sent); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
	if len(asked) != 4 || asked[0] != "odd-name p_odd_name {'per_page': 12}" {
		t.Errorf("asked %q", asked)
	}
}

// TestCallsAreCancelled checks that the server learns that a call was cancelled.
func TestCallsAreCancelled(t *testing.T) {
	t.Parallel()
	begun, ended := make(chan struct{}), make(chan error, 1)
	session := connect(t, offering([]*mcp.Tool{offered("hang", nothing)}, func(ctx context.Context, _ *mcp.CallToolParamsRaw) (*mcp.CallToolResult, error) {
		close(begun)
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}))
	tools, err := agentmcp.Tools(t.Context(), session, &agentmcp.ToolsParams{Allow: []string{"hang"}})
	must.Do(t, err)
	box, err := agent.NewToolbox(tools...)
	must.Do(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-begun
		cancel()
	}()
	if _, err := box.Call(ctx, "hang", nil); err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("got %v, want an end of the call", err)
	}
	must.Is(t, patience.Receive(t, "the end of the server's call", ended), context.Canceled)
}

// TestServerThatDies has a server of another process, which ends in the middle of a call.
func TestServerThatDies(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	must.Do(t, err)
	command := exec.Command(program)
	command.Env = append(os.Environ(), serveVariable+"=1")
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(t.Context(), &mcp.CommandTransport{Command: command}, nil)
	must.Do(t, err)
	defer session.Close()
	var log bytes.Buffer
	tools, err := agentmcp.Tools(t.Context(), session, &agentmcp.ToolsParams{
		Prefix: "pair_", Allow: []string{"add", "die"}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	must.Do(t, err)
	if got := called(t, tools, "pair_add", `{"A":1,"B":2}`); got != "3" {
		t.Errorf("got %s, want 3", got)
	}
	for _, name := range []string{"pair_die", "pair_add", "pair_add"} {
		if got := called(t, tools, name, `{"A":1,"B":2}`[:map[string]int{"pair_add": 13}[name]]); !strings.HasPrefix(got, "ConnectionError: "+name+": the MCP server that has the tool gave no valid answer") {
			t.Errorf("%s: got %s", name, got)
		}
	}
	if got := log.String(); strings.Count(got, "level=WARN") != 3 || !strings.Contains(got, "tool=die error=") {
		t.Errorf("logged %s", got)
	}
}
