//go:build unix

package sandbox

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/e2bctl/e2bctl/sandbox"
)

// followSize resizes the terminal in the sandbox whenever this one is resized, until ctx ends.
func followSize(ctx context.Context, screen *os.File, terminal *sandbox.Terminal) {
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	for {
		select {
		case <-resized:
			if cols, rows, err := term.GetSize(int(screen.Fd())); err == nil {
				_ = terminal.Resize(ctx, cols, rows) // a wrong size is no reason to end the session
			}
		case <-ctx.Done():
			return
		}
	}
}

// screenOf returns the terminal whose size is the size of the screen: the keyboard's.
func screenOf(keyboard *os.File) *os.File { return keyboard }

// obeyEscapes does nothing: terminals obey the escape sequences of programs.
func obeyEscapes() (restore func() error, err error) { return func() error { return nil }, nil }
