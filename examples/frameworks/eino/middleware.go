package eino

import (
	"context"
	"fmt"

	"github.com/cloudwego/eino/adk"
	files "github.com/cloudwego/eino/adk/middlewares/filesystem"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/schema"

	"github.com/e2bctl/e2bctl/examples/frameworks/workspace"
)

// NewMiddleware gives an agent the tools ls, read_file, write_file, edit_file, glob, grep and
// execute, which work in a workspace. The model receives the error of a tool as its result, and
// can correct itself. Only the end of the context or of the sandbox ends the run.
//
// Eino's own handling of long results is off: it writes them to files, outside of the directory
// of the workspace, and the workspace has its bound already.
func NewMiddleware(ctx context.Context, w *workspace.Workspace) (adk.AgentMiddleware, error) {
	middleware, err := files.NewMiddleware(ctx, &files.Config{Backend: &Backend{Workspace: w}, WithoutLargeToolResultOffloading: true})
	if err != nil {
		return middleware, fmt.Errorf("make the tools of the sandbox: %w", err)
	}
	middleware.AdditionalInstruction += "\nThe working directory is " + w.Root + ". All files are below it.\n"
	// The agent's other tools pass through the same functions. Their errors are their own.
	ours := map[string]bool{}
	for _, tool := range middleware.AdditionalTools {
		info, err := tool.Info(ctx)
		if err != nil {
			return middleware, fmt.Errorf("describe the tools of the sandbox: %w", err)
		}
		ours[info.Name] = true
	}
	middleware.WrapToolCall = compose.ToolMiddleware{
		Invokable: func(next compose.InvokableToolEndpoint) compose.InvokableToolEndpoint {
			return func(ctx context.Context, input *compose.ToolInput) (*compose.ToolOutput, error) {
				out, err := next(ctx, input)
				if text, ok := told(ctx, w, err); ok && ours[input.Name] {
					return &compose.ToolOutput{Result: text}, nil
				}
				return out, err
			}
		},
		Streamable: func(next compose.StreamableToolEndpoint) compose.StreamableToolEndpoint {
			return func(ctx context.Context, input *compose.ToolInput) (*compose.StreamToolOutput, error) {
				out, err := next(ctx, input)
				if text, ok := told(ctx, w, err); ok && ours[input.Name] {
					return &compose.StreamToolOutput{Result: schema.StreamReaderFromArray([]string{text})}, nil
				}
				return out, err
			}
		},
	}
	return middleware, nil
}

// told returns an error as text for a model, and false if the model can do nothing about it.
func told(ctx context.Context, w *workspace.Workspace, err error) (string, bool) {
	if err == nil || ctx.Err() != nil || w.Err() != nil {
		return "", false
	}
	return fmt.Sprintf("[error: %v]", err), true
}
