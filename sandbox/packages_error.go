package sandbox

import (
	"fmt"
	"strings"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/lazyregexp"
)

// InstallError reports an installation that pip refused or that failed. It matches
// [ErrRetryable] if no index answered.
type InstallError struct {
	Requirements []string
	// ExitCode is the exit code of pip.
	ExitCode int
	// Stderr is the end of pip's error output, at most 4 KiB. It does not contain the
	// credentials of indexes.
	Stderr string
	// Offline reports that the sandbox was created without internet, or that its network rules allow
	// only listed destinations. For an installation, the rules must allow the index.
	Offline bool
	// Unreachable reports that an index could not be queried: the connection failed, or the index has
	// a certificate that is not trusted, or the index returned an error.
	Unreachable bool
	// HashMismatch reports that a file from the index differs from the file that the [LockFile]
	// describes.
	HashMismatch bool

	// why is the result of querying the index. If there is no such result, it is pip's message.
	why string
	// lock is the first line of the lock's comment. This line contains the Python and the system of
	// the lock.
	lock string
	// wasm is the Python for the packages; nil: a Python with its own pip.
	wasm *wasmPython
}

const maxInstallStderr = 4 << 10

var (
	// notAsked matches pip's log line about an index that it skips. pip then continues as if
	// the index were empty. A missing page of the package is not a failure of the index.
	notAsked   = lazyregexp.New(`Could not fetch URL \S+: (.*) - skipping`)
	noPage     = lazyregexp.New(`^404 `)
	final      = lazyregexp.New(`(?i)^4\d\d |certificate`)
	mismatched = lazyregexp.New(`DO NOT MATCH THE HASHES`)
	mismatches = lazyregexp.New(`(?m)^ +(\S+?)(?: from .*)?:\r?\n(?: +(?:Expected|or) .*\n)+ +Got +(\S+)`)
)

// newInstallError returns the error for a failed pip. log contains the log lines about pages of
// the index.
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

// reason returns the reason for pip's failure. If pip could not query an index, the reason is the
// failure of the query, because pip's last message then only claims that the package does not
// exist.
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

// Is reports whether target is a class of e, such as [ErrRetryable].
func (e *InstallError) Is(target error) bool {
	return target == api.ErrRetryable && e.Unreachable && !e.Offline && !final().MatchString(e.why)
}
