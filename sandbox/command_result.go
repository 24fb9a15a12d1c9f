package sandbox

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/gen/process"
)

// CommandResult is the outcome of a command.
type CommandResult struct {
	// ExitCode is the exit status; -1 if a signal ended the command.
	ExitCode int
	// Signal is the Linux number of the signal that ended the command. It is 0 if no signal
	// ended the command or envd's description is unknown. If the last command of a shell was
	// killed by signal n, Signal is 0 and ExitCode is 128+n.
	Signal int
	// Status describes the end of the command in words, such as "exit status 3". If a signal ended the
	// command, or envd knows the reason for its end, Status is like "signal: killed (out of memory:
	// the sandbox's limit is 2 GiB)".
	Status string
	// Stdout and Stderr are the output that was kept. A line marks each place where bytes were
	// dropped. Bytes that are not UTF-8 become U+FFFD; use [CommandParams.Stdout] and Stderr to
	// receive the exact bytes.
	Stdout, Stderr string
	// StdoutDropped and StderrDropped are the numbers of bytes that were not kept.
	StdoutDropped, StderrDropped int64
	// OutputHeld reports that child processes still had the command's output open when the command
	// ended, as after "server & echo started". They continue to run, and their later output is lost:
	// in the local cloud, a command ends at most 500 ms after its main process. The service's daemon
	// never sets OutputHeld: on E2B's service such a command lasts until all of its processes end or
	// close their output. Redirect the output of processes that should continue: "server >server.log
	// 2>&1 &".
	OutputHeld bool
	// OutputCut reports that the sandbox was paused while the command ran, and that its daemon keeps
	// no output. The output between the pause and the next connection of this handle is lost.
	// Earlier output is kept. The daemon of the local cloud keeps output.
	OutputCut bool
}

// Truncated reports whether output was dropped; StdoutDropped and StderrDropped are the numbers of
// dropped bytes.
func (r *CommandResult) Truncated() bool { return r.StdoutDropped > 0 || r.StderrDropped > 0 }

// signals contains the Linux signals that can end a process, by number. The names are those of Go,
// because envd is written in Go. Go names the higher signals by their number, such as "signal 34".
var signals = [...]string{
	1: "hangup", 2: "interrupt", 3: "quit", 4: "illegal instruction", 5: "trace/breakpoint trap", 6: "aborted",
	7: "bus error", 8: "floating point exception", 9: "killed", 10: "user defined signal 1", 11: "segmentation fault",
	12: "user defined signal 2", 13: "broken pipe", 14: "alarm clock", 15: "terminated", 16: "stack fault",
	24: "CPU time limit exceeded", 25: "file size limit exceeded", 26: "virtual timer expired",
	27: "profiling timer expired", 29: "I/O possible", 30: "power failure", 31: "bad system call",
}

// maxStatus limits the bytes of [CommandResult.Status], because the text comes from the
// sandbox.
const maxStatus = 512

// maxSignal is the highest signal number of Linux. It belongs to a real-time signal.
const maxSignal = 64

// newCommandResult returns the result that the end event of a process reports. A nil event
// means that the end was not seen. The caller adds the output.
func newCommandResult(end *process.ProcessEvent_EndEvent) *CommandResult {
	if end == nil {
		return &CommandResult{ExitCode: -1}
	}
	result := &CommandResult{ExitCode: int(end.GetExitCode()), Status: clip.Line(cmp.Or(end.GetError(), end.GetStatus()), maxStatus)}
	if result.ExitCode < 0 {
		result.Signal = signalOf(cmp.Or(end.GetStatus(), end.GetError()))
	}
	return result
}

// signalOf returns the number of the signal in envd's description of a process's end, such as
// "signal: aborted (core dumped)". It returns 0 if the description contains no signal.
func signalOf(status string) int {
	words, ok := strings.CutPrefix(status, "signal: ")
	if !ok {
		return 0
	}
	words, _, _ = strings.Cut(words, " (")
	if digits, ok := strings.CutPrefix(words, "signal "); ok {
		if number, err := strconv.Atoi(digits); err == nil && 0 < number && number <= maxSignal {
			return number
		}
		return 0
	}
	if words == "" {
		return 0
	}
	return max(0, slices.Index(signals[:], words))
}

// maxLastLine limits the bytes of a command's output in an error.
const maxLastLine = 256

// ExitError reports a command that ran and failed.
type ExitError struct {
	// Result is the complete result of the command.
	Result *CommandResult
}

// Error describes the end of the command, with the last line of its error output.
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
