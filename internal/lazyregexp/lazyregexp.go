// Package lazyregexp has regular expressions that are compiled when they are first
// used. A package's variables are made at every start of a process, and here each
// sandbox starts one of this binary: compiling them all then took longer than the
// rest of what comes before main.
package lazyregexp

import (
	"regexp"
	"sync"
)

// New gives the expression compiled, and panics at its first use if it cannot be.
// It is safe for concurrent use.
func New(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
