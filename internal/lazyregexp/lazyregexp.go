// Package lazyregexp compiles regular expressions when they are first used. Package variables are
// initialised at every start of a process, and the local cloud starts its own binary again for each
// sandbox. Compiling all expressions at the start took longer than everything else that runs before
// main.
package lazyregexp

import (
	"regexp"
	"sync"
)

// New returns a function that returns the compiled expression. If the expression is invalid, the
// first call of this function panics. The function is safe for concurrent use.
func New(expression string) func() *regexp.Regexp {
	return (&lazy{text: expression}).compiled
}

// lazy is an expression that is compiled at its first use. It takes fewer allocations than
// sync.OnceValue, which matters because there are dozens of expressions.
type lazy struct {
	text string
	once sync.Once
	re   *regexp.Regexp
}

func (l *lazy) compiled() *regexp.Regexp {
	l.once.Do(l.compile)
	return l.re
}

func (l *lazy) compile() { l.re = regexp.MustCompile(l.text) }
