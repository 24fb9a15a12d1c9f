package sandbox

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
)

// What runs MCP servers, as the service has it.
const (
	mcpGateway   = "mcp-gateway" // the program, and the template that has it
	mcpPort      = 50005
	mcpTokenFile = "/etc/mcp-gateway/.token"
)

// WithMCP runs MCP servers in the sandbox, which clients reach at [Sandbox.MCPURL]. The keys are
// names of servers, and the values their settings as JSON. The service and programs in the sandbox
// can see credentials in these settings.
//
//	sandbox.WithMCP(map[string]any{"exa": map[string]string{"apiKey": key}})
//
// It takes a template with the program mcp-gateway: unless [WithTemplate] names another, the
// template mcp-gateway, which E2B's service has and a local cloud only if it was built there.
// Create returns when the servers run; if they do not start, the error is an [*ExitError] and
// the sandbox is gone. In a sandbox that starts anew from its files, after a pause or as a
// copy, they do not run.
func WithMCP(servers map[string]any) CreateOption {
	servers = maps.Clone(servers)
	return createOption(func(c *config) error {
		if len(servers) == 0 {
			return errors.New("sandbox: WithMCP: want one server at least")
		}
		if _, err := json.Marshal(servers); err != nil {
			return fmt.Errorf("sandbox: WithMCP: %w", err)
		}
		if c.mcp = servers; c.template == DefaultTemplate {
			c.template = mcpGateway
		}
		return nil
	})
}

// MCPURL returns the address of the MCP servers in the sandbox, for clients that send the
// token of [Sandbox.MCPToken] in a header Authorization: Bearer. What [Sandbox.URL] says of
// names and schemes holds for it, too. Nothing listens there without [WithMCP].
func (sb *Sandbox) MCPURL() string { return sb.URL(mcpPort) + "/mcp" }

// MCPToken returns the token of the MCP servers in the sandbox. If none were ever started in
// it, the error is [fs.ErrNotExist].
func (sb *Sandbox) MCPToken(ctx context.Context) (string, error) {
	token, err := sb.Files.ReadText(ctx, mcpTokenFile, &FileParams{User: "root"})
	return strings.TrimSpace(token), err
}

// startMCP starts the servers that the sandbox was created with.
func (sb *Sandbox) startMCP(ctx context.Context) error {
	if sb.config.mcp == nil {
		return nil
	}
	servers, err := json.Marshal(sb.config.mcp)
	if err != nil {
		return err
	}
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	// Not by Run, whose spans have the command, and here it may have credentials.
	_, err = sb.Commands.run(ctx, append(ownShell(mcpGateway+` --config "$1"`), mcpGateway, string(servers)), &CommandParams{
		User: "root", Envs: map[string]string{"GATEWAY_ACCESS_TOKEN": rand.Text()},
	})
	if err != nil {
		return sb.failed(ctx, "start MCP servers", err)
	}
	return nil
}
