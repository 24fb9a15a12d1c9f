package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
	"github.com/e2bctl/e2bctl/sandbox"
)

// Exit statuses of e2bctl. `e2bctl help exit-codes` prints exitCodesHelp, which
// is the contract.
const (
	exitOK           = 0
	exitFailed       = 1
	exitUsage        = 2
	exitNotFound     = 3
	exitUnauthorized = 4
	exitConflict     = 5
	exitRateLimited  = 6
	exitDeadline     = 7
	exitPartial      = 8
	exitNetwork      = 9

	// Only for commands that return a remote status.
	exitRemoteTimeout = 124
	exitRemoteOwn     = 125
	exitRemoteKilled  = 137

	exitSignalled = 128 // plus the signal's number
)

const exitCodesHelp = `  0     success; an empty list is success
  1     failed, none of the below (server error, I/O, failed check)
  2     usage: unknown flag, bad value, missing argument, confirmation needed
  3     not found: sandbox, template, file
  4     no key, or the key is refused
  5     conflict or wrong state: the sandbox is gone, a local cloud already runs
  6     rate limit or quota
  7     time limit of this command reached
  8     partial: at least one of several targets failed
  9     network: the service could not be reached
  130   interrupted (128 + signal)
  141   nobody reads standard output any more
  143   terminated (128 + signal)

exec, run and code run return the status of the remote command as it is (code
run: 1 when Python raised). Their own failures are:

  124   the command or the sandbox reached its time limit
  125   e2bctl failed before or around the command; the reason is on stderr
  126   found but not executable, as the sandbox says
  127   not found, as the sandbox says
  137   the sandbox ended under the command
  128+n the command died of signal n, with the reason on stderr, or signal n
        stopped e2bctl

A remote 125 looks like ours; with -o json the object on stdout has exitCode,
and a failure of ours has an error object on stderr instead.
`

// usageError is a mistake in the command line; command is the one whose help to
// read.
type usageError struct {
	err     error
	command string
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(cmd *cobra.Command, format string, args ...any) error {
	return &usageError{err: fmt.Errorf(format, args...), command: cmd.CommandPath()}
}

// partialError says that some of several targets failed. Each failure has
// already been reported.
type partialError struct{ failed, total int }

func (e *partialError) Error() string { return fmt.Sprintf("%d of %d failed", e.failed, e.total) }

// remoteStatus is the status of a remote command, to be returned unchanged. The
// command has already written its messages to its own streams.
type remoteStatus int

func (s remoteStatus) Error() string { return fmt.Sprintf("remote status %d", int(s)) }

// ownError is a failure of e2bctl itself in a command that returns a remote
// status; running means that the remote command had already been requested.
type ownError struct {
	err     error
	running bool
}

func (e *ownError) Error() string { return e.err.Error() }
func (e *ownError) Unwrap() error { return e.err }

func (e *ownError) exitCode() int {
	if errors.Is(e.err, context.DeadlineExceeded) {
		return exitRemoteTimeout
	}
	if !e.running || !errors.Is(e.err, sandbox.ErrGone) {
		return exitRemoteOwn
	}
	if gone, ok := errors.AsType[*sandbox.GoneError](e.err); ok && gone.State == sandbox.GoneExpired {
		return exitRemoteTimeout
	}
	return exitRemoteKilled
}

// exitCode is the only place where errors become exit statuses.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	if status, ok := errors.AsType[remoteStatus](err); ok {
		return int(status)
	}
	if stopped, ok := errors.AsType[*signalError](err); ok {
		return exitSignalled + int(stopped.signal)
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return exitUsage
	}
	if own, ok := errors.AsType[*ownError](err); ok {
		return own.exitCode()
	}
	return classify(err).exit
}

// class is the name of an error in JSON and the exit status for it.
type class struct {
	code string
	exit int
	hint string
}

const whereIsTheKey = "Check the key: e2bctl doctor shows where it comes from."

func classify(err error) class {
	if _, ok := errors.AsType[*partialError](err); ok {
		return class{code: "partial", exit: exitPartial}
	}
	if _, ok := errors.AsType[*localcloud.ConflictError](err); ok {
		return class{code: "conflict", exit: exitConflict}
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return class{code: "usage", exit: exitUsage}
	}
	if _, ok := errors.AsType[*signalError](err); ok {
		return class{code: "interrupted", exit: exitCode(err)}
	}
	switch {
	case errors.Is(err, api.ErrNoAPIKey):
		return class{code: "no_key", exit: exitUnauthorized}
	case errors.Is(err, api.ErrInvalidKey):
		return class{code: "invalid_key", exit: exitUnauthorized, hint: whereIsTheKey}
	case errors.Is(err, api.ErrUnauthorized):
		return class{code: "unauthorized", exit: exitUnauthorized, hint: whereIsTheKey}
	case errors.Is(err, api.ErrForbidden):
		return class{code: "forbidden", exit: exitUnauthorized}
	case errors.Is(err, sandbox.ErrUnknownTemplate):
		return class{code: "not_found", exit: exitNotFound, hint: "Check --template; without it the sandbox is made from " + sandbox.DefaultTemplate + "."}
	case errors.Is(err, api.ErrNotFound):
		return class{code: "not_found", exit: exitNotFound, hint: "Run e2bctl ls to see the sandboxes there are."}
	case errors.Is(err, fs.ErrNotExist):
		return class{code: "not_found", exit: exitNotFound}
	case errors.Is(err, sandbox.ErrGone):
		return class{code: "gone", exit: exitConflict}
	case errors.Is(err, api.ErrConflict):
		return class{code: "conflict", exit: exitConflict}
	case errors.Is(err, api.ErrRateLimited):
		return class{code: "rate_limited", exit: exitRateLimited}
	case errors.Is(err, context.DeadlineExceeded):
		return class{code: "deadline", exit: exitDeadline}
	case isNetwork(err):
		return class{code: "network", exit: exitNetwork, hint: "Check the address and the proxy variables: e2bctl doctor tests them."}
	}
	return class{code: "failed", exit: exitFailed}
}

// isNetwork reports whether no service answered.
func isNetwork(err error) bool {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e.StatusCode == 0
	}
	failed, ok := errors.AsType[*net.OpError](err)
	return ok && failed.Op != "listen"
}

// report writes err in a form for people or programs, and returns the status to
// exit with.
func report(ctx context.Context, f *Factory, cmd *cobra.Command, err error) int {
	if err == nil {
		return exitOK
	}
	if f.IO.outClosed.Load() {
		return exitSignalled + int(syscall.SIGPIPE)
	}
	if _, ok := errors.AsType[remoteStatus](err); ok {
		return exitCode(err)
	}
	// A command that was stopped fails with the error of whatever call was
	// interrupted; the signal is the reason.
	if stopped, ok := errors.AsType[*signalError](context.Cause(ctx)); ok {
		err = stopped
	}
	c := classify(err)
	message := printable(err.Error())
	name := strings.TrimPrefix(cmd.CommandPath(), "e2bctl ")
	if cmd.HasParent() {
		message = name + ": " + message
	}
	if f.jsonOutput() {
		writeErrorJSON(f.IO, c.code, message, err)
		return exitCode(err)
	}
	fmt.Fprintf(f.IO.Err, "e2bctl: %s\n", message)
	if usage, ok := errors.AsType[*usageError](err); ok {
		fmt.Fprintf(f.IO.Err, "Run %s --help for its flags and examples.\n", usage.command)
	} else if c.hint != "" {
		fmt.Fprintln(f.IO.Err, c.hint)
	}
	return exitCode(err)
}

func writeErrorJSON(ios *IOStreams, code, message string, err error) {
	type body struct {
		Code      string `json:"code"`
		Message   string `json:"message"`
		Status    int    `json:"status,omitempty"`
		RequestID string `json:"requestID,omitempty"`
	}
	b := body{Code: code, Message: message}
	if e, ok := errors.AsType[*api.Error](err); ok {
		b.Status, b.RequestID = e.StatusCode, printable(e.RequestID)
	}
	if b.Status == 0 && errors.Is(err, api.ErrNotFound) {
		b.Status = http.StatusNotFound
	}
	text, _ := json.Marshal(map[string]body{"error": b}) // strings and a number: it cannot fail
	fmt.Fprintf(ios.Err, "%s\n", text)
}
