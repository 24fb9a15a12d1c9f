//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// mcpRows measure `e2bctl mcp` as a client of an agent sees it.
func (b *bench) mcpRows() []row {
	return []row{
		{
			name: "`e2bctl mcp`: from its start to a result of Python", runs: 5, measure: calls(func(ctx context.Context) error {
				return b.withMCP(ctx, func(ctx context.Context, session *mcp.ClientSession) error { return addIn(ctx, session) })
			}),
			floor: calls(bare(b.command, "code", "run", "--local", "-c", adding)), floorName: "`e2bctl code run`",
		},
		{
			name: "`e2bctl mcp`: `run_python(\"" + adding + "\")`", runs: 200, measure: b.addingInMCP,
			floor: b.inOne(onePlusOne), floorName: "`RunCode`",
		},
	}
}

func (b *bench) addingInMCP(ctx context.Context, runs int) (r result, err error) {
	err = b.withMCP(ctx, func(ctx context.Context, session *mcp.ClientSession) (err error) {
		r, err = repeat(ctx, runs, whole(func(ctx context.Context) error { return addIn(ctx, session) }))
		return err
	})
	return r, err
}

// addIn has a server run a cell whose value must be 2.
func addIn(ctx context.Context, session *mcp.ClientSession) error {
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "run_python", Arguments: map[string]any{"code": adding}})
	if err != nil {
		return err
	}
	if text, ok := result.Content[0].(*mcp.TextContent); result.IsError || !ok || text.Text != "2" {
		return fmt.Errorf("%s is %+v", adding, result.Content)
	}
	return nil
}

// withMCP calls do with a session of a new `e2bctl mcp`, and ends that.
func (b *bench) withMCP(ctx context.Context, do func(context.Context, *mcp.ClientSession) error) (err error) {
	server := exec.CommandContext(ctx, b.command, "mcp", "--local", "--quiet")
	client := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.CommandTransport{Command: server, TerminateDuration: 10 * time.Second}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	return do(ctx, session)
}
