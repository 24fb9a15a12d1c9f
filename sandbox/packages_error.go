package sandbox

import (
	"fmt"
	"strings"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/lazyregexp"
)

// InstallError is an installation that pip refused or that failed. It matches
// [ErrRetryable] if the reason was that no index answered.
type InstallError struct {
	Requirements []string
	// ExitCode is the exit code of pip.
	ExitCode int
	// Stderr is the end of pip's error output, at most 4 KiB, without the
	// credentials of indexes.
	Stderr string
	// Offline reports that the sandbox was created without internet, or that its
	// network rules deny everything that they do not allow: they have to allow the
	// index.
	Offline bool
	// Unreachable reports that an index could not be queried: there was no
	// connection, its certificate is not trusted, or it refused or failed.
	Unreachable bool
	// HashMismatch reports that a file from the index is not the one in the
	// [LockFile].
	HashMismatch bool

	// why is the result of querying the index, and otherwise what pip said.
	why string
	// lock is the first line of the lock's comment, which names its Python and system.
	lock string
	// wasm is the Python that the packages are for; nil: one with pip of its own.
	wasm *wasmPython
}

const maxInstallStderr = 4 << 10

var (
	// notAsked matches what pip logs about an index that it gives up, as if the
	// index had nothing. A missing page of the package is not a failure of the
	// index.
	notAsked   = lazyregexp.New(`Could not fetch URL \S+: (.*) - skipping`)
	noPage     = lazyregexp.New(`^404 `)
	final      = lazyregexp.New(`(?i)^4\d\d |certificate`)
	mismatched = lazyregexp.New(`DO NOT MATCH THE HASHES`)
	mismatches = lazyregexp.New(`(?m)^ +(\S+?)(?: from .*)?:\r?\n(?: +(?:Expected|or) .*\n)+ +Got +(\S+)`)
)

// newInstallError returns the error for a failed pip. log holds the lines of its
// log about pages of the index.
func newInstallError(requirements []string, result *CommandResult, log string, masks *strings.Replacer, offline bool) *InstallError {
	stderr := masks.Replace(result.Stderr)
	e := &InstallError{
		Requirements: requirements, ExitCode: result.ExitCode, Offline: offline, why: pipReason(masks.Replace(result.Stdout), stderr),
		Stderr:       strings.ToValidUTF8(stderr[max(len(stderr)-maxInstallStderr, 0):], ""),
		HashMismatch: mismatched().MatchString(stderr),
	}
	for _, match := range notAsked().FindAllStringSubmatch(masks.Replace(log), -1) {
		if !noPage().MatchString(match[1]) {
			e.Unreachable, e.why = true, match[1]
		}
	}
	return e
}

func (e *InstallError) Error() string {
	text := e.reason()
	if e.lock != "" && !e.Unreachable {
		text += fmt.Sprintf("; the lock says %.128q: another Python or system needs one of its own", e.lock)
	}
	if e.Offline {
		text += "; the sandbox reaches only what its network rules allow (WithInternet, WithNetwork), and the package index is to be among that"
	}
	return fmt.Sprintf("sandbox: install %s: pip ended with status %d: %s", clip.Text(strings.Join(e.Requirements, " "), 128), e.ExitCode, text)
}

// reason returns the reason for pip's failure. If pip could not query an index, that is the failure
// of the query, because pip's last message only says that there is no such package.
func (e *InstallError) reason() string {
	if e.Unreachable {
		return "the package index could not be asked: " + clip.Text(e.why, 256)
	}
	if e.HashMismatch {
		text := "what the index gives is not what the lock has"
		if match := mismatches().FindStringSubmatch(e.Stderr); match != nil {
			text += fmt.Sprintf(": %s has the hash %s", clip.Text(match[1], 128), clip.Text(match[2], 64))
		}
		return text
	}
	if text := e.wasm.explain(e.Stderr); text != "" {
		return text
	}
	return e.why
}

// Is matches [ErrRetryable].
func (e *InstallError) Is(target error) bool {
	return target == api.ErrRetryable && e.Unreachable && !e.Offline && !final().MatchString(e.why)
}
