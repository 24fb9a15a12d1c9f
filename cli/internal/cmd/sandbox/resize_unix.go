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

// followSize resizes the terminal in the sandbox whenever the terminal of this process is resized,
// until ctx ends.
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
