package agentmcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox/agent"
)

// TestSizesOfTools checks the longest name, schema and description of a tool, with the side that is allowed.
func TestSizesOfTools(t *testing.T) {
	t.Parallel()
	const schema = `{"description":"%s","type":"object"}`
	rest := maxSchema - len(schema) + len("%s")
	for beyond, fits := range map[int]bool{0: true, 1: false} {
		long := &mcp.Tool{Name: strings.Repeat("n", maxName+beyond), InputSchema: json.RawMessage(`{"type":"object"}`)}
		if _, err := new(caller).tool("a", long, &ToolsParams{}); (err == nil) != fits || err != nil && !strings.Contains(err.Error(), fmt.Sprintf("its name has %d bytes, more than %d", maxName+1, maxName)) {
			t.Errorf("a name %d bytes beyond the bound: got error %v, want it to fit: %v", beyond, err, fits)
		}
		large := &mcp.Tool{Name: "a", InputSchema: json.RawMessage(fmt.Sprintf(schema, strings.Repeat("x", rest+beyond)))}
		if _, err := new(caller).tool("a", large, &ToolsParams{}); (err == nil) != fits || err != nil && !strings.Contains(err.Error(), fmt.Sprintf("its schema has %d bytes, more than %d", maxSchema+1, maxSchema)) {
			t.Errorf("a schema %d bytes beyond the bound: got error %v, want it to fit: %v", beyond, err, fits)
		}
		described := &mcp.Tool{Name: "a", Description: strings.Repeat("d", maxDescription+beyond), InputSchema: json.RawMessage(`{"type":"object"}`)}
		tool, err := new(caller).tool("a", described, &ToolsParams{})
		must.Do(t, err)
		if cut := strings.HasSuffix(tool.Description(), "…"); cut == fits || strings.Count(tool.Description(), "d") != maxDescription {
			t.Errorf("a description %d bytes beyond the bound: got %d bytes, cut: %v", beyond, len(tool.Description()), cut)
		}
	}
	if _, err := new(caller).tool("a", &mcp.Tool{Name: "a", InputSchema: make(chan int)}, &ToolsParams{}); err == nil {
		t.Error("a schema that is no JSON is taken")
	}
}

// TestListsOfTools checks how many tools a server may list, and that each page is read once.
func TestListsOfTools(t *testing.T) {
	t.Parallel()
	for count, fits := range map[int]bool{0: true, maxTools: true, maxTools + 1: false} {
		const size = 500
		server := mcp.NewServer(&mcp.Implementation{Name: "many"}, &mcp.ServerOptions{PageSize: size, Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}})
		for i := range count {
			server.AddTool(&mcp.Tool{Name: fmt.Sprintf("t%04d", i), InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{}, nil
			})
		}
		near, far := mcp.NewInMemoryTransports()
		serving, err := server.Connect(t.Context(), far, nil)
		must.Do(t, err)
		session, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(t.Context(), near, nil)
		must.Do(t, err)
		tools, err := list(t.Context(), session)
		if refused := err != nil && strings.Contains(err.Error(), "it has more than 1000 tools"); refused == fits || fits && len(tools) != count {
			t.Errorf("%d tools: got %d and error %v, want them to fit: %v", count, len(tools), err, fits)
		}
		for i, tool := range tools {
			if want := fmt.Sprintf("t%04d", i); tool.Name != want {
				t.Fatalf("%d tools: got %s at %d, want %s", count, tool.Name, i, want)
			}
		}
		must.Do(t, session.Close())
		_ = serving.Wait() // with the error of the connection that has ended
	}
}

// TestAnswers checks every field of an answer, for clients of all versions.
func TestAnswers(t *testing.T) {
	t.Parallel()
	text := func(text string) []mcp.Content { return []mcp.Content{&mcp.TextContent{Text: text}} }
	for _, tt := range []struct {
		result        string
		err           error
		any, isError  bool
		content       []mcp.Content
		hasStructured bool
	}{
		{`"a"`, nil, true, false, text("a"), false}, {`null`, nil, true, false, []mcp.Content{}, false}, {`{"a":1}`, nil, false, false, text(`{"a":1}`), true},
		{`{"a":1}`, nil, true, false, text(`{"a":1}`), true}, {`[1]`, nil, true, false, text(`[1]`), true}, {`[1]`, nil, false, false, text(`[1]`), false},
		{`1`, nil, true, false, text(`1`), true}, {`1`, nil, false, false, text(`1`), false}, {``, context.Canceled, true, true, text("context canceled"), false},
	} {
		got := answer(json.RawMessage(tt.result), tt.err, tt.any)
		if diff := cmp.Diff(tt.content, got.Content); diff != "" || got.IsError != tt.isError || (got.StructuredContent != nil) != tt.hasStructured {
			t.Errorf("%s, any %v: got %v as structured content, an error: %v, content (-want +got):\n%s", tt.result, tt.any, got.StructuredContent, got.IsError, diff)
		}
		if tt.hasStructured && string(got.StructuredContent.(json.RawMessage)) != tt.result {
			t.Errorf("%s: got the structured content %s", tt.result, got.StructuredContent)
		}
	}
	for _, tt := range []struct {
		texts []string
		want  string
	}{{nil, `{"a":1}`}, {[]string{`{ "a": 1 }`}, `{ "a": 1 }`}, {[]string{`{"a":2}`}, `{"a":1}`}, {[]string{`{"a": 1}`, ""}, `{"a":1}`}, {[]string{`{`}, `{"a":1}`}} {
		if got, err := exact(map[string]any{"a": 1.0}, tt.texts); string(got) != tt.want || err != nil {
			t.Errorf("with the texts %q: got %s and error %v, want %s", tt.texts, got, err, tt.want)
		}
	}
}

// TestOddResults checks the results of a server that no code can receive.
func TestOddResults(t *testing.T) {
	t.Parallel()
	var asks mcp.CallToolResult
	must.Do(t, json.Unmarshal([]byte(`{"resultType":"input_required","content":[{"type":"text","text":"x"}]}`), &asks))
	never := make(chan int)
	image := &mcp.ImageContent{MIMEType: "image/png"}
	for want, result := range map[string]*mcp.CallToolResult{
		"the tool asks for something that this program does not answer": &asks,
		"the tool failed and gave no reason":                            {IsError: true, Content: []mcp.Content{&mcp.TextContent{}}},
		"json: unsupported type: chan int":                              {Content: []mcp.Content{&mcp.ToolResultContent{StructuredContent: never}}}, //nolint:staticcheck // any content with a value of Go
		"json: unsupported type: chan  int":                             {StructuredContent: never},
		"json: unsupported type: chan   int":                            {StructuredContent: never, Content: []mcp.Content{image}},
	} {
		got, err := resultOf(result)
		if err == nil || err.Error() != strings.Join(strings.Fields(want), " ") {
			t.Errorf("got %v and error %v, want %s", got, err, want)
		}
	}
}

// TestSessionThatEnded checks that a list that cannot be read is an error, and that a call after the end of the session
// has an error of its own also without a logger.
func TestSessionThatEnded(t *testing.T) {
	t.Parallel()
	server := mcp.NewServer(&mcp.Implementation{Name: "one"}, nil)
	server.AddTool(&mcp.Tool{Name: "a", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{}, nil
	})
	near, far := mcp.NewInMemoryTransports()
	serving, err := server.Connect(t.Context(), far, nil)
	must.Do(t, err)
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(t.Context(), near, nil)
	must.Do(t, err)
	params := &ToolsParams{Allow: []string{"a"}}
	tools, err := Tools(t.Context(), session, params)
	must.Do(t, err)
	must.Do(t, session.Close())
	_ = serving.Wait() // with the error of the connection that has ended
	if _, err := Tools(t.Context(), session, params); err == nil || !strings.HasPrefix(err.Error(), "agentmcp: list the tools of the server: ") {
		t.Errorf("got error %v", err)
	}
	box, err := agent.NewToolbox(tools...)
	must.Do(t, err)
	_, err = box.Call(t.Context(), "a", nil)
	if failed, ok := errors.AsType[*agent.ToolError](err); !ok || failed.Type != "ConnectionError" {
		t.Errorf("got error %v, want a ConnectionError", err)
	}
}
