package eino_test

import (
	"context"
	"fmt"

	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/components/model"

	"github.com/e2bctl/e2bctl/examples/frameworks/eino"
	"github.com/e2bctl/e2bctl/examples/frameworks/workspace"
	"github.com/e2bctl/e2bctl/sandbox"
)

// ask lets an agent work in a sandbox of its own. The model is any of eino-ext, such as
// components/model/openai.
func ask(ctx context.Context, m model.ToolCallingChatModel, question string) error {
	sb, err := sandbox.Create(ctx, sandbox.WithInternet(false))
	if err != nil {
		return err
	}
	defer sb.Close()
	files, err := eino.NewMiddleware(ctx, workspace.New(sb))
	if err != nil {
		return err
	}
	agent, err := adk.NewChatModelAgent(ctx, &adk.ChatModelAgentConfig{
		Name: "programmer", Description: "writes and runs programs", Model: m, Middlewares: []adk.AgentMiddleware{files},
	})
	if err != nil {
		return err
	}
	events := adk.NewRunner(ctx, adk.RunnerConfig{Agent: agent}).Query(ctx, question)
	for event, ok := events.Next(); ok; event, ok = events.Next() {
		if event.Err != nil {
			return event.Err
		}
		if message, _, err := adk.GetMessage(event); err == nil && message != nil {
			fmt.Println(message.Role, message.Content)
		}
	}
	return nil
}

func ExampleNewMiddleware() {
	if err := ask(context.Background(), &script{}, "Write a program that prints the first 20 primes, and run it."); err != nil {
		fmt.Println(err)
	}
}
