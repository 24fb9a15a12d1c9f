package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/e2bctl/e2bctl/sandbox"
)

// plot saves the picture of snippets/plot.py. Without matplotlib it only prints a note and
// returns no error.
func plot(ctx context.Context, do *steps, sb *sandbox.Sandbox, out string) error {
	execution, err := sb.RunCode(ctx, snippet("plot"), nil)
	if exception := (*sandbox.ExecutionError)(nil); errors.As(err, &exception) && exception.Name == "ModuleNotFoundError" {
		do.note("no picture: %s", exception.Value)
		return nil
	}
	if err != nil {
		return err
	}
	for _, result := range execution.Results {
		image := result.PNG()
		if image == nil {
			continue
		}
		if err := os.MkdirAll(out, 0o755); err != nil {
			return err
		}
		path := filepath.Join(out, "packages.png")
		if err := os.WriteFile(path, image, 0o644); err != nil {
			return err
		}
		do.done("saved the picture as %s (%d kB)", path, len(image)/1000)
		return nil
	}
	return errors.New("snippets/plot.py showed no picture")
}
