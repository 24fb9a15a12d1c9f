package sandbox

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/windows"
	"golang.org/x/term"

	"github.com/e2bctl/e2bctl/sandbox"
)

// followSize resizes the terminal in the sandbox whenever this one is resized, until ctx ends.
// Windows reports no such changes, so followSize asks for the size four times a second.
func followSize(ctx context.Context, screen *os.File, terminal *sandbox.Terminal) {
	cols, rows, _ := term.GetSize(int(screen.Fd()))
	look := time.NewTicker(time.Second / 4)
	defer look.Stop()
	for {
		select {
		case <-look.C:
			newCols, newRows, err := term.GetSize(int(screen.Fd()))
			if err != nil || newCols == cols && newRows == rows {
				continue
			}
			cols, rows = newCols, newRows
			_ = terminal.Resize(ctx, cols, rows) // a wrong size is no reason to end the session
		case <-ctx.Done():
			return
		}
	}
}

// screenOf returns the output of this process: only a console's output has a size.
func screenOf(*os.File) *os.File { return os.Stdout }

// obeyEscapes makes the console obey the escape sequences of programs in the sandbox until
// restore is called; otherwise it would print them. An output that is no console gets them
// unchanged.
func obeyEscapes() (restore func() error, err error) {
	console := windows.Handle(os.Stdout.Fd())
	var before uint32
	if windows.GetConsoleMode(console, &before) != nil {
		return func() error { return nil }, nil
	}
	err = windows.SetConsoleMode(console, before|windows.ENABLE_PROCESSED_OUTPUT|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING)
	return func() error { return windows.SetConsoleMode(console, before) }, err
}
