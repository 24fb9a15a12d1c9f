package builds

import (
	"strings"
)

// expand replaces $NAME and ${NAME} in the value of a variable by what get returns, "" for
// what is not set; ${NAME:-word} and ${NAME:+word} as a shell does; and \$ by a dollar
// sign. All else stays, commands in backticks and parentheses too.
func expand(text string, get func(name string) string) string {
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

// variable returns what the text behind a dollar sign stands for, and how long that is; 0
// if it is no variable.
func variable(text string, get func(name string) string) (value string, n int) {
	if !strings.HasPrefix(text, "{") {
		n = nameLength(text)
		return get(text[:n]), n
	}
	end := strings.IndexByte(text, '}')
	if end < 0 {
		return "", 0
	}
	inner := text[1:end]
	name := inner[:nameLength(inner)]
	value = get(name)
	switch rest := inner[len(name):]; {
	case name == "":
		return "", 0
	case rest == "":
	case strings.HasPrefix(rest, ":-"):
		if value == "" {
			value = rest[2:]
		}
	case strings.HasPrefix(rest, ":+"):
		if value != "" {
			value = rest[2:]
		}
	default:
		return "", 0
	}
	return value, end + 1
}

// nameLength returns how long the name of a variable is that a text begins with.
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
