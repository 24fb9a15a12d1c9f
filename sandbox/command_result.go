package sandbox

import (
	"fmt"

	"github.com/e2bctl/e2bctl/internal/clip"
)

// CommandResult is what a command left.
type CommandResult struct {
	// ExitCode is its exit status; -1 when a signal ended it.
	ExitCode int
	// Status says it in words: "exit status 3", "signal: killed (out of memory: the sandbox's limit is 2 GiB)".
	Status string
	// Stdout and Stderr are the output, as far as it is kept; where bytes were
	// dropped, a line says so. What is not UTF-8 is U+FFFD in them: for bytes
	// there are [CommandParams.Stdout] and Stderr.
	Stdout, Stderr string
	// StdoutDropped and StderrDropped count the bytes that are not kept.
	StdoutDropped, StderrDropped int64
}

// maxLastLine bounds what an error repeats of a command's output.
const maxLastLine = 256

// ExitError is a command that ran and failed.
type ExitError struct {
	// Result is complete, as of a command that succeeds.
	Result *CommandResult
}

// Error says how it ended, and the last line of its error output.
func (e *ExitError) Error() string {
	status := e.Result.Status
	if status == "" {
		status = fmt.Sprintf("exit status %d", e.Result.ExitCode)
	}
	if last := clip.LastLine(e.Result.Stderr, maxLastLine); last != "" {
		return "command failed: " + status + ": " + last
	}
	return "command failed: " + status
}
