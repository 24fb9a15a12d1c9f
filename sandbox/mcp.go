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

// These are the names and the port that E2B's service uses for MCP servers.
const (
	mcpGateway   = "mcp-gateway" // the program, and the template that contains it
	mcpPort      = 50005
	mcpTokenFile = "/etc/mcp-gateway/.token"
)

// WithMCP starts MCP servers in the sandbox. Clients reach them at [Sandbox.MCPURL]. The keys
// are names of servers, and the values their settings, which are encoded as JSON. The service
// and programs in the sandbox can see credentials in these settings.
//
//	sandbox.WithMCP(map[string]any{"exa": map[string]string{"apiKey": key}})
//
// The template must contain the program mcp-gateway. If [WithTemplate] names no template, the
// sandbox uses the template mcp-gateway. E2B's service has this template; on a local cloud it must
// be built first. Create returns when the servers run. If they do not start, the error is
// an [*ExitError] and the sandbox is killed. The servers do not run in a sandbox that starts anew
// from its files. This can happen after a pause, or if the sandbox is a copy of another sandbox.
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

// MCPURL returns the address of the MCP servers in the sandbox. Clients must send the token of
// [Sandbox.MCPToken] in the header "Authorization: Bearer TOKEN". The address has the host name and
// the scheme of [Sandbox.URL]. Nothing listens at this address without [WithMCP].
func (sb *Sandbox) MCPURL() string { return sb.URL(mcpPort) + "/mcp" }

// MCPToken returns the token of the MCP servers in the sandbox. The error is [fs.ErrNotExist]
// if no servers were ever started.
func (sb *Sandbox) MCPToken(ctx context.Context) (string, error) {
	token, err := sb.Files.ReadText(ctx, mcpTokenFile, &FileParams{User: "root"})
	return strings.TrimSpace(token), err
}

// startMCP starts the MCP servers of the sandbox's configuration.
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
	// Run would put the command, which may contain credentials, into a span.
	_, err = sb.Commands.run(ctx, append(ownShell(mcpGateway+` --config "$1"`), mcpGateway, string(servers)), &CommandParams{
		User: "root", Envs: map[string]string{"GATEWAY_ACCESS_TOKEN": rand.Text()},
	})
	if err != nil {
		return sb.failed(ctx, "start MCP servers", err)
	}
	return nil
}
