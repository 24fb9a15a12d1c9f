package agentmcp

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/sandbox/agent"
)

// structuredSince is the version of the protocol since which structured content may be any
// value. Clients of earlier ones take an object only.
const structuredSince = "2026-07-28"

// AddTools adds tools to a server, by their names, with their descriptions and schemas; one
// that the server has under such a name is replaced. They are called as by an
// [agent.Toolbox]: limits and approvals hold, and MaxCalls and MaxConcurrency count the calls of
// all clients together, from this call of AddTools on. When a client cancels a call, the context
// of the tool ends.
//
// A result that is text is the text of the answer, None is an answer without content, and any
// other result is its JSON, which is the structured content as well where the client's version
// of the protocol has it. There is no output schema. An error of a tool, a refused
// approval and an exceeded limit are answers with isError and the text of the error. A panic is
// one that does not tell its value, which goes to [slog.Default].
//
// AddTools returns an error, and adds no tool, if two tools have one name or a tool was not
// made by package agent. An error about a schema that the server refuses names the tool; those
// before it are then added.
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
			if err != nil {
				return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: err.Error()}}}, nil
			}
			return answer(result, anyStructured(request.Session)), nil
		})
	return nil
}

// anyStructured reports whether a client takes structured content that is no object.
func anyStructured(session *mcp.ServerSession) bool {
	begun := session.InitializeParams()
	return begun == nil || begun.ProtocolVersion >= structuredSince
}

// answer converts a result for a client.
func answer(result json.RawMessage, anyStructured bool) *mcp.CallToolResult {
	converted := &mcp.CallToolResult{Content: []mcp.Content{}}
	var text string
	switch {
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
