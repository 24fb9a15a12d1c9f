package agentmcp_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/internal/exampletest"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/sandbox/agent/agentmcp"
)

func TestExamples(t *testing.T) { exampletest.Check(t) }

// Code composes the tools of a server in one step.
func ExampleTools() {
	defer exampletest.StartCloud()() // only here: your program has E2B_API_KEY, or local.Start

	err := sandbox.Use(context.Background(), func(ctx context.Context, sb *sandbox.Sandbox) error {
		client := mcp.NewClient(&mcp.Implementation{Name: "example"}, nil)
		session, err := client.Connect(ctx, archive(ctx), nil) // or &mcp.CommandTransport{Command: exec.Command(…)}
		if err != nil {
			return err
		}
		defer session.Close()
		tools, err := agentmcp.Tools(ctx, session, &agentmcp.ToolsParams{Prefix: "archive_", Allow: []string{"find"}})
		if err != nil {
			return err
		}
		run, err := agent.Begin(ctx, sb, &agent.Params{Tools: tools})
		if err != nil {
			return err
		}
		defer run.Close()
		fmt.Println(tools[0].Signature()) // Tool.Prompt is for the model
		step, err := run.Exec(ctx, "sorted(sum((archive_find(word=w)['found'] for w in ('pear', 'fig')), []))")
		if err != nil {
			return err
		}
		fmt.Println(step.Value)
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// archive_find(word: str) -> Any
	// ['a fig', 'a pear']
}

// archive stands for a server that you use.
func archive(ctx context.Context) mcp.Transport {
	type query struct {
		Word string `json:"word"`
	}
	type result struct {
		Found []string `json:"found"`
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "archive"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "find", Description: "Searches the archive."},
		func(_ context.Context, _ *mcp.CallToolRequest, q query) (*mcp.CallToolResult, result, error) {
			return nil, result{Found: []string{"a " + q.Word}}, nil
		})
	near, far := mcp.NewInMemoryTransports()
	go server.Run(ctx, far)
	return near
}

// A tool of an agent is served to any client of the protocol.
func ExampleAddTools() {
	type question struct {
		Fruit string `json:"fruit" doc:"its name, in the singular"`
	}
	price := agent.MustTool("price", "Gives the price of a fruit.", func(_ context.Context, q question) (float64, error) {
		if q.Fruit != "apple" {
			return 0, fmt.Errorf("no price for %q", q.Fruit) // an answer with isError
		}
		return 1.5, nil
	}, agent.WithToolLimits(agent.ToolLimits{MaxConcurrency: 4}))
	server := mcp.NewServer(&mcp.Implementation{Name: "shop"}, nil)
	if err := agentmcp.AddTools(server, price); err != nil {
		fmt.Println(err)
		return
	}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	near, far := mcp.NewInMemoryTransports() // your program has &mcp.StdioTransport{}, or HTTP
	go server.Run(ctx, far)
	session, err := mcp.NewClient(&mcp.Implementation{Name: "example"}, nil).Connect(ctx, near, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close()
	for _, fruit := range []string{"apple", "fig"} {
		answer, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "price", Arguments: question{fruit}})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(answer.Content[0].(*mcp.TextContent).Text)
	}
	// Output:
	// 1.5
	// price: no price for "fig"
}
