package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/e2bctl/e2bctl/sandbox"
)

func ExampleCommands_Run() {
	ctx := context.Background()
	_ = sandbox.Use(ctx, func(ctx context.Context, sb *sandbox.Sandbox) error {
		result, err := sb.Commands.Run(ctx, "go vet ./...", &sandbox.CommandParams{
			Cwd: "app", Timeout: time.Minute, Stderr: os.Stderr,
		})
		if failed, ok := errors.AsType[*sandbox.ExitError](err); ok {
			return fmt.Errorf("vet found something, status %d", failed.Result.ExitCode)
		}
		if err != nil {
			return err
		}
		fmt.Print(result.Stdout)
		return nil
	})
}

// A server runs beside other commands, and ends when it is told to.
func ExampleCommands_Start() {
	ctx := context.Background()
	_ = sandbox.Use(ctx, func(ctx context.Context, sb *sandbox.Sandbox) error {
		server, err := sb.Commands.Start(ctx, "exec python3 -m http.server 8000", &sandbox.CommandParams{Tag: "server"})
		if err != nil {
			return err
		}
		if _, err := sb.Commands.Run(ctx, "curl -fsS --retry 5 --retry-connrefused 127.0.0.1:8000", nil); err != nil {
			return err
		}
		if err := server.Kill(ctx); err != nil {
			return err
		}
		_, err = server.Wait(ctx) // an *ExitError: "signal: killed"
		fmt.Println(err)
		return nil
	})
}

func ExampleCommand_Events() {
	ctx := context.Background()
	_ = sandbox.Use(ctx, func(ctx context.Context, sb *sandbox.Sandbox) error {
		command, err := sb.Commands.Start(ctx, "make test", nil)
		if err != nil {
			return err
		}
		for event, err := range command.Events(ctx) {
			switch {
			case err != nil:
				return err
			case event.Exit != nil:
				fmt.Println("status", event.Exit.ExitCode)
			default:
				fmt.Printf("%s%s", event.Stdout, event.Stderr)
			}
		}
		return nil
	})
}

func ExamplePTY_Open() {
	ctx := context.Background()
	_ = sandbox.Use(ctx, func(ctx context.Context, sb *sandbox.Sandbox) error {
		terminal, err := sb.PTY.Open(ctx, &sandbox.PTYParams{Cols: 100, Rows: 30})
		if err != nil {
			return err
		}
		defer terminal.Close()
		if _, err := io.WriteString(terminal, "stty size; exit\n"); err != nil {
			return err
		}
		_, err = io.Copy(os.Stdout, terminal)
		return err
	})
}
