package agentmcp

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/sandbox/agent"
)

// structuredSince is the first version of the protocol in which structured
// content may be any value. Clients of earlier versions take an object only.
const structuredSince = "2026-07-28"

// AddTools adds tools to a server, with their names, descriptions and schemas. A tool that the
// server has under such a name is replaced. The tools are called as by one [agent.Toolbox]: limits
// and approvals hold, and MaxCalls and MaxConcurrency count the calls of all clients together,
// from this call of AddTools on. When a client cancels a call, the context of the tool ends.
//
// A text becomes the text of the answer, and None an answer without content. Any other
// result becomes its JSON as text, and also structured content if the client's version
// of the protocol has it. There is no output schema. An error of a tool, a refused
// approval and an exceeded limit become answers with isError and the text of the error.
// A panic becomes such an answer without its value, which goes to [slog.Default].
//
// If two tools have one name, or a tool was not made by package agent,
// AddTools returns an error and adds no tool. If the server refuses a
// schema, the error names the tool, and the tools before it have been added.
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
		if refused := recover(); refused != nil { // the library has no other word for it
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

// anyStructured reports whether a client takes structured content other than objects.
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
	case json.Unmarshal(result, &text) != nil: // no string
		text = string(result)
		if anyStructured || result[0] == '{' {
			converted.StructuredContent = result
		}
	}
	converted.Content = append(converted.Content, &mcp.TextContent{Text: text})
	return converted
}
