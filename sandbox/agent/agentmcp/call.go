package agentmcp

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"reflect"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/sandbox/agent"
)

// caller calls the tools of one server.
type caller struct {
	session *mcp.ClientSession
	logger  *slog.Logger
}

// call calls a tool. The parameter tool is the name of the tool on the server. call returns the
// result as the code in the sandbox receives it.
func (c *caller) call(ctx context.Context, tool string, arguments json.RawMessage) (any, error) {
	result, err := c.session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
	switch refused, ok := errors.AsType[*jsonrpc.Error](err); {
	case err == nil:
		return resultOf(result)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case ok: // the server wrote the text
		return nil, &agent.ToolError{Type: "MCPError", Message: refused.Message}
	}
	c.logger.WarnContext(ctx, "a call of a tool of an MCP server failed", "tool", tool, "error", err)
	return nil, &agent.ToolError{Type: "ConnectionError", Message: "the MCP server that has the tool gave no valid answer: it may have ended, or its connection is broken; the log of the program that runs the tool says more"}
}

// resultOf converts the result of a call to the value that the code receives.
func resultOf(result *mcp.CallToolResult) (any, error) {
	var texts []string
	var others []any
	for _, part := range result.Content {
		if text, ok := part.(*mcp.TextContent); ok {
			texts = append(texts, text.Text)
			continue
		}
		other, err := part.MarshalJSON()
		if err != nil {
			return nil, err
		}
		others = append(others, json.RawMessage(other))
	}
	text := strings.Join(texts, "\n")
	switch {
	case result.IsError && text == "":
		return nil, &agent.ToolError{Type: "MCPError", Message: "the tool failed and gave no reason"}
	case result.IsError:
		return nil, &agent.ToolError{Type: "MCPError", Message: text}
	case result.NeedsInput():
		return nil, &agent.ToolError{Type: "MCPError", Message: "the tool asks for something that this program does not answer"}
	}
	if len(others) == 0 {
		switch {
		case result.StructuredContent != nil:
			return exact(result.StructuredContent, texts)
		case len(texts) > 0:
			return text, nil
		}
		return nil, nil
	}
	var all []any
	if result.StructuredContent != nil {
		structured, err := exact(result.StructuredContent, texts)
		if err != nil {
			return nil, err
		}
		all = append(all, structured)
	} else {
		for _, text := range texts {
			all = append(all, text)
		}
	}
	list, err := json.Marshal(append(all, others...))
	return json.RawMessage(list), err
}

// exact returns structured content as JSON. The protocol's library decodes each number to a
// float64, so that large numbers lose digits. The protocol recommends that a result with structured
// content also contains the same value as a text. If there is such a text, exact takes the numbers
// from it.
func exact(structured any, texts []string) (json.RawMessage, error) {
	if len(texts) == 1 {
		var same any
		if json.Unmarshal([]byte(texts[0]), &same) == nil && reflect.DeepEqual(same, structured) {
			return json.RawMessage(texts[0]), nil
		}
	}
	return json.Marshal(structured)
}
