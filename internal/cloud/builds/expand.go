package builds

import (
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/shell"
)

// expand replaces variables in the value of a variable. $NAME and ${NAME} become the result of
// get, or "" if the variable is not set. ${NAME:-word}, ${NAME%pattern} and similar forms have
// the same results as in Docker. \$ becomes a dollar sign. Everything else stays, including
// commands in backticks and parentheses.
func expand(text string, get variables) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		switch rest := text[i:]; {
		case strings.HasPrefix(rest, `\$`):
			b.WriteByte('$')
			i += 2
		case rest[0] != '$':
			b.WriteByte(rest[0])
			i++
		default:
			value, n := variable(rest[1:], get)
			if n == 0 {
				value = "$"
			}
			b.WriteString(value)
			i += 1 + n
		}
	}
	return b.String()
}

// variable returns the value of the variable at the beginning of text. The dollar sign of the
// variable is before text. n is the length of the variable's name or braces; n is 0 if text does
// not begin with a variable.
func variable(text string, get variables) (value string, n int) {
	if !strings.HasPrefix(text, "{") {
		n = nameLength(text)
		value, _ = get(text[:n])
		return value, n
	}
	n = bracesLength(text)
	if n == 0 || nameLength(text[1:n]) == 0 {
		return "", 0
	}
	words := shell.NewLex('\\')
	words.SkipProcessQuotes = true // parses as between double quotes
	value, _, err := words.ProcessWord("$"+text[:n], get)
	if err != nil {
		return "", 0
	}
	return value, n
}

// bracesLength returns the length of the expression in braces at the beginning of text. It returns
// 0 if the braces are not closed.
func bracesLength(text string) int {
	open := 0
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\':
			i++
		case text[i] == '}':
			if open--; open == 0 {
				return i + 1
			}
		case text[i] == '{' && (i == 0 || text[i-1] == '$'):
			open++
		}
	}
	return 0
}

// variables returns the value of a variable, and whether the variable is set.
type variables func(name string) (value string, set bool)

// Get implements shell.EnvGetter.
func (v variables) Get(name string) (string, bool) { return v(name) }

// Keys implements shell.EnvGetter.
func (variables) Keys() []string { return nil }

// nameLength returns the length of the variable name at the beginning of text.
func nameLength(text string) int {
	for i := range len(text) {
		c := text[i]
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return i
		}
	}
	return len(text)
}
