// Package shortage recognises errors whose cause is that this machine or its user has
// no more processes, open files or memory, so that they are not taken for something
// that the machine lacks or refuses for good.
package shortage

import (
	"fmt"
	"strings"
)

// Error says what there is too little of, and what to do.
type Error struct {
	what string
	err  error
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %v", e.what, e.err) }

// Unwrap returns the error that showed it.
func (e *Error) Unwrap() error { return e.err }

// signs are the words of the system, and of the run times of Go and C for the same, in
// lower case. The errors of other processes arrive as text.
var signs = []struct {
	what  string
	words []string
}{
	{
		"this user can have no more processes and threads; end some, or raise ulimit -u and the pids.max of its control group",
		[]string{"resource temporarily unavailable", "failed to create new os thread"},
	},
	// Too many references are open files on their way between processes of this user,
	// more than this process may have open.
	{"no more files can be opened; raise ulimit -n", []string{"too many open files", "too many references"}},
	{"there is not enough memory", []string{"cannot allocate memory"}},
}

// Of returns err as an [*Error] if a shortage is its cause, else nil.
func Of(err error) error { return Because(err, err.Error()) }

// Because is Of for an error whose cause can be in evidence: what the process that
// failed wrote.
func Because(err error, evidence string) error {
	evidence = strings.ToLower(evidence)
	for _, sign := range signs {
		for _, words := range sign.words {
			if strings.Contains(evidence, words) {
				return &Error{sign.what, err}
			}
		}
	}
	return nil
}
