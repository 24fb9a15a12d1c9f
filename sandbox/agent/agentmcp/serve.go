package agentmcp

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/sandbox/agent"
)

// structuredSince is the first version of the protocol in which structured content may be any
// value. Clients of earlier versions accept only an object.
const structuredSince = "2026-07-28"

// AddTools adds tools to a server, with their names, descriptions and schemas. It replaces
// tools of the server that have the same names. One [agent.Toolbox] calls the tools, so limits and
// approvals apply. MaxCalls and MaxConcurrency count the calls of all clients together, from this
// call of AddTools on. When a client cancels a call, the context of the tool ends.
//
// If the result of a tool is a text, this text is the text of the answer. If the result is None,
// the answer has no content. For any other result, the text of the answer is the result as JSON,
// and the answer also contains the result as structured content if the client's version of the
// protocol supports this. There is no output schema. An error of a tool, a refused approval and an
// exceeded limit become answers with isError and the text of the error. A panic also becomes an
// answer with isError, without the value of the panic. The value is logged to [slog.Default].
//
// If two tools have the same name, or a tool was not made by package agent, AddTools returns an
// error and adds no tool. If the server refuses the schema of a tool, the error names this tool. In
// this case, the tools before it in the list have been added.
func AddTools(server *mcp.Server, tools ...agent.Tool) error {
	box, err := agent.NewToolbox(tools...)
	if err != nil {
		return fmt.Errorf("agentmcp: add tools to a server: %w", err)
	}
	for _, t := range tools {
		if err := addTool(server, box, t); err != nil {
			return err
		}
	}
	return nil
}

func addTool(server *mcp.Server, box *agent.Toolbox, t agent.Tool) (err error) {
	defer func() {
		if refused := recover(); refused != nil { // the library reports an invalid schema only by a panic
			err = fmt.Errorf("agentmcp: add the tool %s to a server: %v", t.Name(), refused)
		}
	}()
	server.AddTool(&mcp.Tool{Name: t.Name(), Description: t.Description(), InputSchema: t.Schema()},
		func(ctx context.Context, request *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			result, err := box.Call(ctx, t.Name(), request.Params.Arguments)
			return answer(result, err, anyStructured(request.Session)), nil
		})
	return nil
}

// anyStructured reports whether a client accepts structured content other than objects.
func anyStructured(session *mcp.ServerSession) bool {
	begun := session.InitializeParams()
	return begun == nil || begun.ProtocolVersion >= structuredSince
}

// answer converts the result or the error of a call for a client.
func answer(result json.RawMessage, err error, anyStructured bool) *mcp.CallToolResult {
	converted := &mcp.CallToolResult{Content: []mcp.Content{}, IsError: err != nil}
	var text string
	switch {
	case err != nil:
		text = err.Error()
	case string(result) == "null":
		return converted
	case json.Unmarshal(result, &text) != nil: // not a string
		text = string(result)
		if anyStructured || result[0] == '{' {
			converted.StructuredContent = result
		}
	}
	converted.Content = append(converted.Content, &mcp.TextContent{Text: text})
	return converted
}
