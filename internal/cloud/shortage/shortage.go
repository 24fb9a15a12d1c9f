// Package shortage recognises errors that occur because this machine or its user has no
// processes, open files or memory left. Without this package, such an error could look as if the
// machine lacked a feature or always refused it.
package shortage

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Error names an exhausted resource, and a remedy.
type Error struct {
	what string
	err  error
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %v", e.what, e.err) }

// Unwrap returns the error that the shortage caused.
func (e *Error) Unwrap() error { return e.err }

// New returns an [*Error] with a remedy for err.
func New(remedy string, err error) error { return &Error{remedy, err} }

// SandboxDisk is a text in errors about the disk of one sandbox. This disk has its own limit, so
// IsDisk returns false for these errors.
const SandboxDisk = "the disk of the sandbox, whose limit must be what it was"

// IsDisk reports whether err occurred because a disk of the machine is full.
func IsDisk(err error) bool {
	text := strings.ToLower(err.Error())
	return !strings.Contains(text, SandboxDisk) && slices.ContainsFunc(diskWords, func(words string) bool { return strings.Contains(text, words) })
}

var diskWords = []string{"no space left on device", "disk quota exceeded", "database or disk is full"}

// signs contains the words with which the system and the run-time libraries of Go and C report a
// shortage, in lower case. Words are necessary because errors of other processes arrive as text.
//
// If a text contains one of the words in the field but, the text is not a sign, because it means
// that another resource is exhausted.
var signs = []struct {
	what       string
	words, but []string
}{
	{
		"this user can have no more processes and threads; end some, or raise ulimit -u and the pids.max of its control group",
		[]string{"resource temporarily unavailable", "failed to create new os thread"},
		nil,
	},
	// "Too many references" means that processes of this user are passing more open files to
	// each other than this process may have open.
	{"no more files can be opened; raise ulimit -n", []string{"too many open files", "too many references"}, nil},
	{"there is not enough memory; end other programs, or raise ulimit -v, ulimit -d or the memory of the container", []string{"cannot allocate memory"}, nil},
	{"a file may not become as large as it has to be; raise ulimit -f", []string{"file too large", "file size limit exceeded"}, nil},
	// For namespaces and mounts, the same words mean a limit of the machine and not a full
	// disk.
	{
		"a disk is full; free some of it, or have TMPDIR, XDG_RUNTIME_DIR and XDG_CACHE_HOME name directories elsewhere",
		diskWords,
		[]string{"unshare", "clone", "namespaces", "mount"},
	},
}

// Of returns err as an [*Error] if a shortage is the cause. Otherwise it returns nil.
func Of(err error) error {
	if _, known := errors.AsType[*Error](err); known {
		return err
	}
	return Because(err, err.Error())
}

// Because returns err as an [*Error] like Of, but it searches evidence for the cause. evidence is
// the output of the failed process.
func Because(err error, evidence string) error {
	evidence = strings.ToLower(evidence)
	for _, sign := range signs {
		for _, words := range sign.words {
			if strings.Contains(evidence, words) && !slices.ContainsFunc(sign.but, func(but string) bool { return strings.Contains(evidence, but) }) {
				return &Error{sign.what, err}
			}
		}
	}
	return nil
}
