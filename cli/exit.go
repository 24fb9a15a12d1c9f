package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
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
	exitForbidden    = 10

	// exitRemoteTimeout is only for commands that return the status of a remote command.
	exitRemoteTimeout = 124
	exitRemoteOwn     = 125
	exitRemoteKilled  = 137

	exitSignalled = 128 // the status is this plus the number of the signal
)

const exitCodesHelp = `  0     success; an empty list is success
  1     failed, none of the below (server error, I/O, failed check)
  2     usage: unknown flag, missing argument, confirmation needed, a value that
        the command or the service refuses
  3     not found: sandbox, template, build, snapshot, volume, secret, file
  4     no key, or the key is refused
  5     conflict or wrong state: a name is taken, what is named is in use, the
        sandbox is paused already, or ended while the command worked with it,
        a file is there already, a local cloud already runs
  6     rate limit or quota
  7     time limit of this command reached
  8     partial: at least one of several targets failed
  9     network: the service could not be reached
  10    not allowed: a directory that the local cloud does not mount, a built-in
        template
  130   interrupted (128 + signal)
  141   the reader of standard output has gone
  143   terminated (128 + signal)

logs -f and events -f of one sandbox return 0 when it has ended: nothing is missing.

exec, connect, proc attach, run and code run return the status of the remote command as
it is (code run: 1 when Python raised), and code repl returns 0 at its end. Their own failures are:

  124   the command or the sandbox reached its time limit
  125   e2bctl failed before or around the command; the reason is on stderr
  126   found but not executable, as the sandbox says
  127   not found, as the sandbox says
  137   the sandbox ended under the command
  128+n the command died of signal n, with the reason on stderr, or signal n
        stopped e2bctl

A 125 of the remote command looks the same. With -o json, a remote status is the
exitCode of an object on stdout, and a failure of e2bctl is an error object on
stderr.
`

func ownExitCode(e *cmdutil.OwnError) int {
	if errors.Is(e.Err, context.DeadlineExceeded) {
		return exitRemoteTimeout
	}
	if !e.Running || !errors.Is(e.Err, sandbox.ErrGone) {
		return exitRemoteOwn
	}
	gone, _ := errors.AsType[*sandbox.GoneError](e.Err)
	switch {
	case gone == nil:
		return exitRemoteKilled
	case gone.State == sandbox.GoneExpired, gone.State == sandbox.GoneIdle:
		return exitRemoteTimeout
	case gone.State == sandbox.GonePaused: // the command may continue
		return exitRemoteOwn
	}
	return exitRemoteKilled
}

// exitCode returns the exit status for an error. No other function maps errors to exit statuses.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	if status, ok := errors.AsType[cmdutil.RemoteStatus](err); ok {
		return int(status)
	}
	if stopped, ok := errors.AsType[*signalError](err); ok {
		return exitSignalled + int(stopped.signal)
	}
	if _, ok := errors.AsType[*cmdutil.UsageError](err); ok {
		return exitUsage
	}
	if own, ok := errors.AsType[*cmdutil.OwnError](err); ok {
		return ownExitCode(own)
	}
	return classify(err).exit
}

// class is the code of an error in JSON, with the exit status and a hint for the user.
type class struct {
	code string
	exit int
	hint string
}

const listThem = "Run e2bctl ls" + cmdutil.OnLocal + " to list the sandboxes."

const whereIsTheKey = "Check the key: e2bctl doctor shows where it comes from."

// ofSandbox reports whether the error answer e comes from a sandbox, and not from the service. An
// answer of a sandbox shows that the key is valid.
func ofSandbox(e *api.Error) bool {
	for _, path := range []string{"/process.", "/filesystem.", "/files", "/execute", "/contexts", "/api/"} {
		if strings.HasPrefix(e.Path, path) {
			return true
		}
	}
	return false
}

// ofSandboxes reports whether an error is about the existence of sandboxes, and not
// about their content.
func ofSandboxes(err error) bool {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return !ofSandbox(e)
	}
	return errors.Is(err, sandbox.ErrGone)
}

// isUnknownUser reports whether a sandbox refused the user for a command. If the user of a request
// is unknown, the daemon in the sandbox answers with the status that otherwise means a wrong key.
func isUnknownUser(err error) bool {
	e, ok := errors.AsType[*api.Error](err)
	return ok && errors.Is(e, api.ErrUnauthorized) && ofSandbox(e) && strings.Contains(e.Message, "user")
}

// ofKey reports whether err is an error answer of the service about an API key.
func ofKey(err error) bool {
	e, ok := errors.AsType[*api.Error](err)
	return ok && strings.HasPrefix(e.Path, "/api-keys")
}

// ofSecret reports whether err is an error answer of the service about a secret.
func ofSecret(err error) bool {
	e, ok := errors.AsType[*api.Error](err)
	return ok && (strings.HasPrefix(e.Path, "/secrets") || e.Code == api.CodeSecretNotFound)
}

// ofTemplate reports whether err is an error answer of the service about a template or snapshot.
func ofTemplate(err error) bool {
	e, ok := errors.AsType[*api.Error](err)
	return ok && (strings.HasPrefix(e.Path, "/templates") || strings.HasPrefix(e.Path, "/v2/templates"))
}

// ofBuild reports whether err is an error answer of the service about the build of a template.
func ofBuild(err error) bool {
	e, ok := errors.AsType[*api.Error](err)
	return ok && strings.Contains(e.Path, "/templates") && e.Method == http.MethodPost
}

// ofVolume reports whether err is about a volume or the content of a volume.
func ofVolume(err error) bool {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return strings.HasPrefix(e.Path, "/volume") || e.Code == api.CodeVolumeNotFound
	}
	_, ok := errors.AsType[*sandbox.NoVolumeError](err)
	return ok
}

// whereFilesAre returns a hint about a missing file. It names the directory to which paths without
// a leading slash are relative.
func whereFilesAre(err error) string {
	failed, ok := errors.AsType[*fs.PathError](err)
	if !ok || !errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if _, here := errors.AsType[syscall.Errno](failed.Err); here {
		return "This path is one of this machine; without a slash in front it begins in the current directory."
	}
	return "This path is one of the sandbox; without a slash in front it begins in the home directory of its user."
}

func classify(err error) class {
	if _, ok := errors.AsType[*cmdutil.PartialError](err); ok {
		return class{code: "partial", exit: exitPartial}
	}
	if _, ok := errors.AsType[*localcloud.ConflictError](err); ok {
		return class{code: "conflict", exit: exitConflict}
	}
	if _, ok := errors.AsType[*cmdutil.UsageError](err); ok {
		return class{code: "usage", exit: exitUsage}
	}
	if _, ok := errors.AsType[*signalError](err); ok {
		return class{code: "interrupted", exit: exitCode(err)}
	}
	if e, ok := errors.AsType[*api.Error](err); ok && isUnknownUser(err) {
		return class{code: "unknown_user", exit: exitNotFound, hint: "The sandbox has no such user: check --user; without it commands run as user."}
	} else if ok && ofSandbox(e) && errors.Is(e, api.ErrUnauthorized) {
		return class{code: "unauthorized", exit: exitUnauthorized}
	}
	if gone, ok := errors.AsType[*sandbox.GoneError](err); ok && gone.State == sandbox.GonePaused {
		return class{code: "paused", exit: exitConflict, hint: "Run e2bctl resume" + cmdutil.OnLocal + " " + cmdutil.Printable(gone.ID) + " to continue it."}
	}
	hint := ""
	if hinted, ok := errors.AsType[cmdutil.HintedError](err); ok {
		hint = hinted.Hint()
	}
	if hint != "" && errors.Is(err, fs.ErrNotExist) {
		return class{code: "not_found", exit: exitNotFound, hint: hint}
	}
	switch {
	case errors.Is(err, sandbox.ErrUnknownLanguage):
		return class{code: "unknown_language", exit: exitNotFound, hint: "Python's kernel is in every sandbox, and after e2bctl local setup Bash's is. For others run e2bctl local setup --full, which the next local cloud has, or name a template that has them (--template)."}
	case errors.Is(err, api.ErrNoAPIKey):
		return class{code: "no_key", exit: exitUnauthorized}
	case errors.Is(err, api.ErrInvalidKey):
		return class{code: "invalid_key", exit: exitUnauthorized, hint: whereIsTheKey}
	case errors.Is(err, api.ErrUnauthorized):
		return class{code: "unauthorized", exit: exitUnauthorized, hint: whereIsTheKey}
	case errors.Is(err, api.ErrForbidden):
		return class{code: "forbidden", exit: exitForbidden}
	case errors.Is(err, sandbox.ErrUnknownTemplate):
		return class{code: "not_found", exit: exitNotFound, hint: "Check --template; without it the sandbox is made from " + sandbox.DefaultTemplate + "."}
	case errors.Is(err, api.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return class{code: "not_found", exit: exitNotFound, hint: whereToLook(err)}
	case errors.Is(err, fs.ErrExist):
		return class{code: "conflict", exit: exitConflict}
	case errors.Is(err, sandbox.ErrGone):
		return class{code: "gone", exit: exitConflict}
	case errors.Is(err, api.ErrConflict):
		return class{code: "conflict", exit: exitConflict}
	case errors.Is(err, api.ErrInvalidArgument):
		return class{code: "invalid", exit: exitUsage, hint: hint}
	case errors.Is(err, api.ErrRateLimited) && ofBuild(err):
		return class{code: "rate_limited", exit: exitRateLimited, hint: "Wait until a build has ended, then try again: e2bctl template ls{local} shows which are under way."}
	case errors.Is(err, api.ErrRateLimited):
		return class{code: "rate_limited", exit: exitRateLimited, hint: "Wait and try again, or end what is not needed: e2bctl ls{local} and e2bctl kill{local}."}
	case errors.Is(err, context.DeadlineExceeded):
		return class{code: "deadline", exit: exitDeadline}
	case errors.Is(err, api.ErrNothingListens):
		return class{code: "network", exit: exitNetwork, hint: `Nothing listens there. If it was a local cloud, it has ended: start one with eval "$(e2bctl local up --background)", or unset E2B_API_URL, E2B_SANDBOX_URL and E2B_DOMAIN; e2bctl doctor tests the address.`}
	case isNetwork(err):
		return class{code: "network", exit: exitNetwork, hint: "Check the address and the proxy variables: e2bctl doctor tests them."}
	}
	return class{code: "failed", exit: exitFailed}
}

// whereToLook returns a hint for an error about an object that does not exist. The hint names the
// command that lists the objects of this kind.
func whereToLook(err error) string {
	switch {
	case !errors.Is(err, api.ErrNotFound):
		return whereFilesAre(err)
	case errors.Is(err, os.ErrProcessDone):
		return "Run e2bctl proc ls{local} <id> to list the processes of a sandbox."
	case ofSecret(err):
		return "Run e2bctl secret ls{local} to list the secrets."
	case ofKey(err):
		return "Run e2bctl api-key ls{local} to list the keys."
	case ofTemplate(err):
		return "Run e2bctl template ls{local} or e2bctl snapshot ls{local} to list what there is."
	case ofVolume(err):
		return "Run e2bctl volume ls{local} to list the volumes, and e2bctl volume ls{local} <volume>:/ what is in one."
	case whereFilesAre(err) == "" && ofSandboxes(err):
		return listThem
	}
	return whereFilesAre(err)
}

// isNetwork reports whether err means that no service answered.
func isNetwork(err error) bool {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e.StatusCode == 0
	}
	failed, ok := errors.AsType[*net.OpError](err)
	return ok && failed.Op != "listen"
}

// report writes err in a form for people or programs, and returns the status to
// exit with.
func report(ctx context.Context, f *cmdutil.Factory, cmd *cobra.Command, err error) int {
	if err == nil {
		return exitOK
	}
	if f.IO.OutClosed() {
		return exitSignalled + int(syscall.SIGPIPE)
	}
	if _, ok := errors.AsType[cmdutil.RemoteStatus](err); ok {
		return exitCode(err)
	}
	// A command that was stopped fails with the error of the call that was interrupted;
	// the signal is the reason.
	if stopped, ok := errors.AsType[*signalError](context.Cause(ctx)); ok {
		err = stopped
	}
	view := describe(err)
	if cmd.HasParent() {
		view.Message = ofCommand(cmd, view.Message)
	}
	text := view.Message + "\n"
	if usage, ok := errors.AsType[*cmdutil.UsageError](err); ok {
		text += fmt.Sprintf("Run %s --help for its flags and examples.\n", usage.Command)
	} else if hint := hintHere(f, classify(err)); hint != "" {
		text += hint + "\n"
	}
	if f.JSONErrors() {
		writeErrorJSON(f.IO, view)
	} else {
		fmt.Fprint(f.IO.Err, "e2bctl: "+text)
	}
	f.Annotate(strings.TrimSuffix(text, "\n"))
	return exitCode(err)
}

// ofCommand puts the name of the command before the message of its error. It does not repeat a name
// that the message already has: errors of the SDK begin with the name of the operation.
func ofCommand(cmd *cobra.Command, message string) string {
	path := strings.TrimPrefix(cmd.CommandPath(), "e2bctl ")
	said := cmd.Name() + " " // as in: create from base
	if cmd.Parent().HasParent() {
		said += cmd.Parent().Name() + " " // create volume data
	}
	if strings.HasPrefix(message, said) {
		return message
	}
	for _, word := range strings.Fields(path) { // snapshot: x is gone
		message = strings.TrimPrefix(message, word+": ")
	}
	return path + ": " + message
}

// hintHere returns the hint for an error. It takes into account whether a local cloud is
// running.
func hintHere(f *cmdutil.Factory, c class) string {
	switch {
	case c.code == "no_key" && f.LocalCloudRuns():
		return "A local cloud is running: --local uses it, as in e2bctl ls --local."
	case f.UsesRunningLocalCloud():
		return strings.ReplaceAll(c.hint, cmdutil.OnLocal, " --local")
	}
	return strings.ReplaceAll(c.hint, cmdutil.OnLocal, "")
}

// describe returns an error as -o json shows it.
func describe(err error) cmdutil.ErrorView {
	view := cmdutil.ErrorView{Code: classify(err).code, Message: cmdutil.Message(err)}
	if e, ok := errors.AsType[*api.Error](err); ok {
		view.Status, view.RequestID = e.StatusCode, cmdutil.Printable(e.RequestID)
	}
	if view.Status == 0 && errors.Is(err, api.ErrNotFound) {
		view.Status = http.StatusNotFound
	}
	return view
}

func writeErrorJSON(ios *cmdutil.IOStreams, view cmdutil.ErrorView) {
	text, _ := json.Marshal(map[string]cmdutil.ErrorView{"error": view}) // strings and a number: it cannot fail
	fmt.Fprintf(ios.Err, "%s\n", text)
}
