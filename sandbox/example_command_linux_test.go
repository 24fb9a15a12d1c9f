package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/exampletest"
	"github.com/e2bctl/e2bctl/sandbox"
)

func ExampleCommands_Run() {
	defer exampletest.StartCloud()()

	err := sandbox.Use(context.Background(), func(ctx context.Context, sb *sandbox.Sandbox) error {
		result, err := sb.Commands.Run(ctx, "sort -u", &sandbox.CommandParams{
			Stdin: strings.NewReader("pear\napple\npear\n"), Timeout: time.Minute,
		})
		if err != nil {
			return err
		}
		fmt.Print(result.Stdout)

		_, err = sb.Commands.Run(ctx, "echo no such fruit >&2; exit 3", nil)
		if failed, ok := errors.AsType[*sandbox.ExitError](err); ok {
			fmt.Print("status ", failed.Result.ExitCode, ": ", failed.Result.Stderr)
			return nil
		}
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// apple
	// pear
	// status 3: no such fruit
}

// Without a shell, nothing in an argument is interpreted.
func ExampleCommands_Exec() {
	defer exampletest.StartCloud()()

	err := sandbox.Use(context.Background(), func(ctx context.Context, sb *sandbox.Sandbox) error {
		result, err := sb.Commands.Exec(ctx, "echo", []string{"$HOME; it's text"}, nil)
		if err != nil {
			return err
		}
		fmt.Print(result.Stdout)

		_, err = sb.Commands.Exec(ctx, "no-such-program", nil, nil)
		fmt.Println("missing:", errors.Is(err, exec.ErrNotFound))
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// $HOME; it's text
	// missing: true
}

func ExampleCommands_Output() {
	defer exampletest.StartCloud()()

	err := sandbox.Use(context.Background(), func(ctx context.Context, sb *sandbox.Sandbox) error {
		machine, err := sb.Commands.Output(ctx, "uname", []string{"-s"}, nil)
		fmt.Printf("%s", machine)
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: Linux
}

func ExampleQuote() {
	name := "it's; rm -rf ~"
	fmt.Println("wc -l < " + sandbox.Quote(name))
	// Output: wc -l < 'it'\''s; rm -rf ~'
}

// A command that runs beside others until it is told to end.
func ExampleCommands_Start() {
	defer exampletest.StartCloud()()

	err := sandbox.Use(context.Background(), func(ctx context.Context, sb *sandbox.Sandbox) error {
		server, err := sb.Commands.Start(ctx, "exec python3 -m http.server 8000", &sandbox.CommandParams{Tag: "server"})
		if err != nil {
			return err
		}
		running, err := sb.Commands.List(ctx, nil)
		if err != nil {
			return err
		}
		for _, process := range running {
			fmt.Println("running:", process.Tag)
		}
		if err := server.Kill(ctx); err != nil {
			return err
		}
		_, err = server.Wait(ctx)
		if ended, ok := errors.AsType[*sandbox.ExitError](err); ok {
			fmt.Println(ended.Result.Status)
			return nil
		}
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// running: server
	// signal: killed
}

func ExampleCommand_Events() {
	defer exampletest.StartCloud()()

	err := sandbox.Use(context.Background(), func(ctx context.Context, sb *sandbox.Sandbox) error {
		command, err := sb.Commands.Start(ctx, "echo building; exit 2", nil)
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
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// building
	// status 2
}

func ExamplePTY_Open() {
	defer exampletest.StartCloud()()

	err := sandbox.Use(context.Background(), func(ctx context.Context, sb *sandbox.Sandbox) error {
		// Without a command it is a shell, which reads the bytes written to terminal.
		terminal, err := sb.PTY.Open(ctx, &sandbox.PTYParams{Cols: 100, Rows: 30, Command: "stty size"})
		if err != nil {
			return err
		}
		defer terminal.Close()
		shown, err := io.ReadAll(terminal)
		if err != nil {
			return err
		}
		fmt.Printf("%q\n", shown) // a terminal ends lines with \r\n
		return terminal.Wait(ctx)
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: "30 100\r\n"
}
