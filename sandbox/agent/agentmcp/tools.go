package agentmcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/sandbox/agent"
)

const (
	// maxTools bounds the number of a server's tools, and also the number of pages of the server's
	// list of tools.
	maxTools = 1000
	// maxListBytes limits the bytes of a server's list of tools, including all texts.
	maxListBytes = 16 << 20
	// maxName, maxDescription and maxSchema limit the bytes of the texts of one tool.
	maxName, maxDescription, maxSchema = 256, 16 << 10, 256 << 10
	// maxResult is the default limit of a result's bytes. No transport of the protocol's
	// library accepts a longer line.
	maxResult = 16 << 20
)

// ToolsParams are the optional parameters of [Tools].
type ToolsParams struct {
	// Prefix, such as "github_", is added before the name of each tool, so that tools of
	// several servers have different names.
	Prefix string
	// Allow lists the tools that code may call without approval, by their
	// names on the server. A name that the server does not have is an error.
	Allow []string
	// Approve is called before each call of a tool that is not in Allow. tool is the tool's name on
	// the server. If Approve returns an error, the call is refused, and the code receives the text of
	// the error: see [agent.WithApproval]. Approve is called from several goroutines. If Approve is
	// nil, Tools returns only the tools in Allow.
	Approve func(ctx context.Context, tool string, call agent.ToolCall) error
	// Limits are the limits of each tool. A MaxResultBytes of 0 means 16 MiB.
	Limits agent.ToolLimits
	// Unusable is called for each tool that cannot be used, because its schema or its name is invalid
	// or too large. err is the reason. Tools then leaves the tool out. If Unusable is nil, Tools
	// returns the reason as an error. The name of the tool may contain any characters.
	Unusable func(tool string, err error)
	// Logger receives the errors of the connection at level warn. The code in the sandbox does not
	// receive these errors, because they may contain addresses and tokens. The default is
	// [slog.Default].
	Logger *slog.Logger
}

// Tools returns the tools of the server at the other end of session, in the server's order. They
// are for [agent.Params].Tools. If neither Allow nor Approve is set, Tools returns an error. The
// caller must close the session after the runs that use the tools. If the server's list of tools
// changes, call Tools again.
//
// A tool keeps its name on the server, after Prefix, if Python can use that name. Otherwise
// each character other than a letter or digit becomes "_". A name that Python or the run reserves,
// or that a builtin has, gets "_" at its end, or "tool_" at its beginning. If several tools would
// then have the same name, the second gets "_2" at its end, the third "_3", and so on, in the order
// of their names on the server. A tool that needs no change keeps its name.
//
// The parameters are those of [agent.ToolFromSchema], which checks the arguments before they
// are sent. The required parameters come first. Required and optional parameters are each in
// alphabetical order, because the protocol's library loses the server's order.
//
// The result of a call is the structured content as Python values. Without structured content, it
// is the text as a str. Several texts are joined by newlines. If the server returns no content, the
// result is None. If the content includes images, sounds or resources, the result is a list. The
// list begins with the structured content, or else with the texts. Each other part is a dict as the
// protocol defines it, such as {"type": "image", "mimeType": "image/png", "data": …} with the data
// in base64.
//
// An error of a tool becomes an exception of the type "MCPError" with the text of the error. If the
// connection breaks or the server ends, this call and all later calls raise an exception of the
// type "ConnectionError". When a step ends, its calls are cancelled, and the server is notified of
// the cancellation.
//
// If the list of the server has more than 1,000 tools or 16 MiB, Tools returns an error. A
// description is cut after 16 KiB. A tool is unusable if its schema has more than 256 KiB, or its
// name more than 256 bytes.
func Tools(ctx context.Context, session *mcp.ClientSession, p *ToolsParams) ([]agent.Tool, error) {
	if p == nil {
		p = &ToolsParams{}
	}
	if p.Approve == nil && len(p.Allow) == 0 {
		return nil, errors.New("agentmcp: take the tools of a server: no tool would be allowed: name those that code may call, or set a function that approves calls")
	}
	if !usable(p.Prefix + "x") {
		return nil, fmt.Errorf("agentmcp: take the tools of a server: the prefix %q cannot begin the name of a tool: begin with a letter, and use letters, digits and underscores", p.Prefix)
	}
	offered, err := list(ctx, session)
	if err != nil {
		return nil, fmt.Errorf("agentmcp: list the tools of the server: %w", err)
	}
	for _, name := range p.Allow {
		if !slices.ContainsFunc(offered, func(t *mcp.Tool) bool { return t.Name == name }) {
			return nil, fmt.Errorf("agentmcp: take the tools of a server: it has no tool %q, which was to be allowed", name)
		}
	}
	caller := &caller{session: session, logger: p.Logger}
	if caller.logger == nil {
		caller.logger = slog.Default()
	}
	var tools []agent.Tool
	names := pythonNames(p.Prefix, offered)
	for i, t := range offered {
		if p.Approve == nil && !slices.Contains(p.Allow, t.Name) {
			continue
		}
		tool, err := caller.tool(names[i], t, p)
		if slices.ContainsFunc(offered[:i], func(earlier *mcp.Tool) bool { return earlier.Name == t.Name }) {
			err = errors.New("the server lists it twice")
		}
		switch {
		case err == nil:
			tools = append(tools, tool)
		case p.Unusable != nil:
			p.Unusable(t.Name, err)
		default:
			return nil, fmt.Errorf("agentmcp: take the tool %q of the server: %w", clip.Text(t.Name, maxName), err)
		}
	}
	return tools, nil
}

// list returns all tools of a server.
func list(ctx context.Context, session *mcp.ClientSession) ([]*mcp.Tool, error) {
	var all []*mcp.Tool
	params := &mcp.ListToolsParams{}
	size := 0
	for range maxTools {
		page, err := session.ListTools(ctx, params)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(page)
		if err != nil {
			return nil, err
		}
		if size += len(text); size > maxListBytes {
			return nil, fmt.Errorf("the list has more than %d bytes", maxListBytes)
		}
		if all = append(all, page.Tools...); len(all) > maxTools {
			return nil, fmt.Errorf("it has more than %d tools", maxTools)
		}
		if page.NextCursor == "" {
			return all, nil
		}
		params = &mcp.ListToolsParams{Cursor: page.NextCursor}
	}
	return nil, fmt.Errorf("the list has more than %d pages", maxTools)
}

// tool converts a tool of a server to a tool of this program.
func (c *caller) tool(name string, t *mcp.Tool, p *ToolsParams) (agent.Tool, error) {
	if len(t.Name) > maxName {
		return agent.Tool{}, fmt.Errorf("its name has %d bytes, more than %d", len(t.Name), maxName)
	}
	schema, err := json.Marshal(t.InputSchema)
	if err != nil {
		return agent.Tool{}, err
	}
	if len(schema) > maxSchema {
		return agent.Tool{}, fmt.Errorf("its schema has %d bytes, more than %d", len(schema), maxSchema)
	}
	limits := p.Limits
	if limits.MaxResultBytes == 0 {
		limits.MaxResultBytes = maxResult
	}
	options := []agent.ToolOption{agent.WithToolLimits(limits)}
	if !slices.Contains(p.Allow, t.Name) {
		options = append(options, agent.WithApproval(func(ctx context.Context, call agent.ToolCall) error {
			return p.Approve(ctx, t.Name, call)
		}))
	}
	return agent.ToolFromSchema(name, clip.Text(t.Description, maxDescription), schema, func(ctx context.Context, arguments json.RawMessage) (any, error) {
		return c.call(ctx, t.Name, arguments)
	}, options...)
}
