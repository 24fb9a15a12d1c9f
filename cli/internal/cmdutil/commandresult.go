package cmdutil

import (
	"fmt"
	"io"

	"github.com/e2bctl/e2bctl/sandbox"
)

// Explain writes facts that a command cannot write itself: the signal that ended
// it, the cause, if the sandbox knows it, and that processes that it started
// still have its output open, which is lost from now on.
func Explain(w io.Writer, name string, result *sandbox.CommandResult) {
	if plain := fmt.Sprintf("exit status %d", result.ExitCode); result.ExitCode != 0 && result.Status != "" && result.Status != plain {
		fmt.Fprintf(w, "e2bctl: %s: the command failed: %s\n", name, Printable(result.Status))
	}
	if result.OutputHeld {
		fmt.Fprintf(w, "e2bctl: %s: the command ended, and what it left running still has its output open; what that prints from now on is lost. Redirect it: server >server.log 2>&1 &\n", name)
	}
}

// Statuses that a remote command does not return itself.
const (
	failed    = 1
	signalled = 128 // plus the signal's number
)

// ExitStatus returns the status as a shell does: 128 + n after signal n.
func ExitStatus(result *sandbox.CommandResult) int {
	switch {
	case result.Signal > 0:
		return signalled + result.Signal
	case result.ExitCode < 0, result.ExitCode > 255: // not a status that Linux has
		return failed
	}
	return result.ExitCode
}
