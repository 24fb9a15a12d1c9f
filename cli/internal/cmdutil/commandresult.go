package cmdutil

import (
	"fmt"
	"io"

	"github.com/e2bctl/e2bctl/sandbox"
)

// Explain writes facts that a command cannot write itself. They are the signal that ended the
// command and, if the sandbox reports it, the cause of that end. If processes that the command
// started still have its output open, Explain also warns that their further output is lost.
func Explain(w io.Writer, name string, result *sandbox.CommandResult) {
	if plain := fmt.Sprintf("exit status %d", result.ExitCode); result.ExitCode != 0 && result.Status != "" && result.Status != plain {
		fmt.Fprintf(w, "e2bctl: %s: the command failed: %s\n", name, Printable(result.Status))
	}
	if result.OutputHeld {
		fmt.Fprintf(w, "e2bctl: %s: the command ended, and what it left running still has its output open; what that prints from now on is lost. Redirect it: server >server.log 2>&1 &\n", name)
	}
}

// The statuses that e2bctl returns when the remote command itself returned no status.
const (
	failed    = 1
	signalled = 128 // the status is this plus the number of the signal
)

// ExitStatus returns the status that a shell would return: 128 + n after signal n. A status outside
// of Linux's range becomes 1.
func ExitStatus(result *sandbox.CommandResult) int {
	switch {
	case result.Signal > 0:
		return signalled + result.Signal
	case result.ExitCode < 0, result.ExitCode > 255: // not a status that Linux has
		return failed
	}
	return result.ExitCode
}
