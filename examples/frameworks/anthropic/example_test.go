package anthropic_test

import (
	"context"
	"fmt"

	sdk "github.com/anthropics/anthropic-sdk-go"

	"github.com/e2bctl/e2bctl/examples/frameworks/anthropic"
	"github.com/e2bctl/e2bctl/examples/frameworks/workspace"
	"github.com/e2bctl/e2bctl/sandbox"
)

// ask lets a model work in a sandbox of its own. The client takes its key from ANTHROPIC_API_KEY.
func ask(ctx context.Context, question string) error {
	sb, err := sandbox.Create(ctx, sandbox.WithInternet(false))
	if err != nil {
		return err
	}
	defer sb.Close()
	client := sdk.NewClient()
	message, err := anthropic.Run(ctx, &client, workspace.New(sb), sdk.BetaToolRunnerParams{
		MaxIterations: 20,
		BetaMessageNewParams: sdk.BetaMessageNewParams{
			Model: sdk.ModelClaudeSonnet5_5, MaxTokens: 4096,
			Messages: []sdk.BetaMessageParam{sdk.NewBetaUserMessage(sdk.NewBetaTextBlock(question))},
		},
	})
	if err != nil {
		return err
	}
	for _, block := range message.Content {
		fmt.Println(block.Text)
	}
	return nil
}

func ExampleRun() {
	if err := ask(context.Background(), "Write a program that prints the first 20 primes, and run it."); err != nil {
		fmt.Println(err)
	}
}
