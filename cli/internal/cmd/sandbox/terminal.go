package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

// runTerminal runs line in a terminal of the sandbox. The terminal of this process
// shows it and types into it: Ctrl-C is a key for the program there. If the status
// of the line is not 0 it returns a cmdutil.RemoteStatus.
func runTerminal(ctx context.Context, ios *cmdutil.IOStreams, sb *sandbox.Sandbox, line string, process processFlags) (err error) {
	keyboard, ok := ios.In.(*os.File)
	if !ok {
		return errors.New("standard input is no terminal")
	}
	cols, rows, err := term.GetSize(int(screenOf(keyboard).Fd()))
	if err != nil || cols < 1 || rows < 1 {
		cols, rows = 0, 0 // a terminal without a size gets the default one
	}
	terminal, err := sb.PTY.Open(ctx, &sandbox.PTYParams{
		Cols: cols, Rows: rows, Command: line, User: process.User, Cwd: process.Cwd, Envs: process.Envs,
	})
	if err != nil {
		return &cmdutil.OwnError{Err: err, Running: true}
	}
	defer cmdutil.Closing(terminal, &err)
	before, err := term.MakeRaw(int(keyboard.Fd()))
	if err != nil {
		return err
	}
	forget, err := obeyEscapes()
	if err != nil {
		return errors.Join(fmt.Errorf("have the console obey escape sequences: %w", err), term.Restore(int(keyboard.Fd()), before))
	}
	restore := func() error { return errors.Join(term.Restore(int(keyboard.Fd()), before), forget()) }
	defer func() { err = cmdutil.KeepStatus(err, restore()) }()
	stop := context.AfterFunc(ctx, func() {
		_ = restore() // now, because the remaining steps may take longer than the process lives
		_ = terminal.Close()
	})
	defer stop()
	ctx, ended := context.WithCancel(ctx)
	defer ended()
	go followSize(ctx, keyboard, terminal)
	go func() { _, _ = io.Copy(terminal, keyboard) }() // until the process ends: this read cannot be cancelled

	_, shown := io.Copy(ios.Out, terminal)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if shown != nil {
		return &cmdutil.OwnError{Err: shown, Running: true}
	}
	err = terminal.Wait(ctx)
	if exit, ok := errors.AsType[*sandbox.ExitError](err); ok {
		return cmdutil.RemoteStatus(exitStatus(exit.Result))
	}
	if err != nil {
		return &cmdutil.OwnError{Err: err, Running: true}
	}
	return nil
}
