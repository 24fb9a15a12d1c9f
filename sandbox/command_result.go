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
	// ExitCode is its exit status; -1 when a signal ended it.
	ExitCode int
	// Signal is the Linux number of the signal that ended it, and 0 if none did or
	// envd's words for it are unknown. A shell whose last command was killed by
	// signal n has no Signal itself: its ExitCode is 128+n.
	Signal int
	// Status says in words how it ended: "exit status 3", and if a signal ended it
	// or envd knows a reason, "signal: killed (out of memory: the sandbox's limit is
	// 2 GiB)".
	Status string
	// Stdout and Stderr are the output, as far as it is kept; where bytes were
	// dropped, a line says so. Bytes that are not UTF-8 are U+FFFD here: to get the
	// bytes themselves, use [CommandParams.Stdout] and Stderr.
	Stdout, Stderr string
	// StdoutDropped and StderrDropped count the bytes that are not kept.
	StdoutDropped, StderrDropped int64
	// OutputHeld reports that processes that the command left behind still held its output when it
	// ended, as after "server & echo started". They continue to run, and their later output is
	// lost: the local cloud ends a command at most 500 ms after its own process. The service's
	// daemon never sets it: there such a command lasts until all of them end or close their
	// output. So redirect the output of processes that are to stay: "server >server.log 2>&1 &".
	OutputHeld bool
	// OutputCut reports that the sandbox was paused while the command ran. Output from the pause
	// until this handle connected to the command again is lost. Earlier output is kept.
	OutputCut bool
}

// Truncated reports whether output was not kept; the counters say how much.
func (r *CommandResult) Truncated() bool { return r.StdoutDropped > 0 || r.StderrDropped > 0 }

// signals are the Linux signals that can end a process, by number, with the names
// that Go uses, in which envd is written. Go calls the signals above these
// "signal 34" and so on.
var signals = [...]string{
	1: "hangup", 2: "interrupt", 3: "quit", 4: "illegal instruction", 5: "trace/breakpoint trap", 6: "aborted",
	7: "bus error", 8: "floating point exception", 9: "killed", 10: "user defined signal 1", 11: "segmentation fault",
	12: "user defined signal 2", 13: "broken pipe", 14: "alarm clock", 15: "terminated", 16: "stack fault",
	24: "CPU time limit exceeded", 25: "file size limit exceeded", 26: "virtual timer expired",
	27: "profiling timer expired", 29: "I/O possible", 30: "power failure", 31: "bad system call",
}

// maxStatus bounds [CommandResult.Status], which comes from the sandbox.
const maxStatus = 512

// maxSignal is the highest Linux signal, a real-time one.
const maxSignal = 64

// newCommandResult returns the result that the end of a process reports; nil
// means a process whose end was not seen. The caller adds the output.
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

// signalOf finds the signal in the words with which envd says how a process
// ended, such as "signal: aborted (core dumped)". It is 0 if there is none.
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

// maxLastLine bounds how much of a command's output an error repeats.
const maxLastLine = 256

// ExitError is a command that ran and failed.
type ExitError struct {
	// Result is complete, as for a command that succeeds.
	Result *CommandResult
}

// Error says how the command ended, with the last line of its error output.
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
