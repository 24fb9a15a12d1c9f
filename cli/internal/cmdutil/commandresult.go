package cmdutil

import (
	"fmt"
	"io"

	"github.com/e2bctl/e2bctl/sandbox"
)

// Explain writes facts that a command cannot write itself: the signal that
// ended it, the cause, if the sandbox knows it, and that processes it
// started still have its output open. What they print from now on is lost.
func Explain(w io.Writer, name string, result *sandbox.CommandResult) {
	if plain := fmt.Sprintf("exit status %d", result.ExitCode); result.ExitCode != 0 && result.Status != "" && result.Status != plain {
		fmt.Fprintf(w, "e2bctl: %s: the command failed: %s\n", name, Printable(result.Status))
	}
	if result.OutputHeld {
		fmt.Fprintf(w, "e2bctl: %s: the command ended, and what it left running still has its output open; what that prints from now on is lost. Redirect it: server >server.log 2>&1 &\n", name)
	}
}

// The statuses that no remote command returns itself.
const (
	failed    = 1
	signalled = 128 // the number of the signal is added to it
)

// ExitStatus returns the status that a shell would return: 128 +
// n after signal n. A status that Linux does not have becomes 1.
func ExitStatus(result *sandbox.CommandResult) int {
	switch {
	case result.Signal > 0:
		return signalled + result.Signal
	case result.ExitCode < 0, result.ExitCode > 255: // not a status that Linux has
		return failed
	}
	return result.ExitCode
}
