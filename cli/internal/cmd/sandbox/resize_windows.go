package sandbox

import (
	"context"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/e2bctl/e2bctl/sandbox"
)

// followSize resizes the terminal in the sandbox whenever the terminal of this process is resized,
// until ctx ends. Windows does not report a change of the size, so followSize asks for the size
// four times a second.
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
