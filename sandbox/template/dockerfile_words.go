package template

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// literalDollar replaces a dollar sign that does not begin a variable, in words and values until
// these are sent. It is a code point that does not occur in texts.
const literalDollar = "\ufdd0"

// maxValue limits the bytes of a variable's value, because a program cannot receive a longer
// one.
const maxValue = 128 << 10

// variables contains the variables that the Dockerfile has set so far. Their values may refer to
// variables whose values only the service has, such as those of the image.
type variables map[string]string

// Get implements shell.EnvGetter. It treats a value that refers to other variables as unknown.
func (v variables) Get(name string) (string, bool) {
	value, ok := v[name]
	return value, ok && !strings.Contains(value, "$")
}

// Keys implements shell.EnvGetter.
func (v variables) Keys() []string { return slices.Collect(maps.Keys(v)) }

// value returns a word as Docker interprets it: without quotes and escapes, and with known
// variables replaced by their values. References to other variables remain in the result, and the
// service resolves them.
func (c *conversion) value(word string) (string, error) {
	value, _, err := c.words.ProcessWord(markLiteral(word, c.escape), c.values)
	if err == nil && len(value) > maxValue {
		err = errors.New("the value of a variable is longer than 128 KiB")
	}
	return value, err
}

// expanding returns a value in the form for a step in which the service replaces variables.
func expanding(value string) string { return strings.ReplaceAll(value, literalDollar, `\$`) }

// resolved returns a word in the form for a step in which the service replaces no variables.
func (c *conversion) resolved(word string) (string, error) {
	value, err := c.value(word)
	return strings.ReplaceAll(value, literalDollar, "$"), err
}

// literal returns text as a value without variables: every dollar sign in it is literal.
func literal(text string) string { return strings.ReplaceAll(text, "$", literalDollar) }

// markLiteral replaces each dollar sign of a word that is literal because of quotes or an escape.
// The parser of words drops quotes and escapes, so a literal dollar sign would look like an unknown
// variable. If a quote or an escape ends the name of a variable, markLiteral writes $NAME as
// ${NAME}, because the parser drops this end of the name, too.
func markLiteral(word string, escape rune) string {
	var b strings.Builder
	var within []byte // the open double quotes and braces
	for i := 0; i < len(word); {
		r, size := utf8.DecodeRuneInString(word[i:])
		rest := word[i+size:]
		top := byte(0)
		if len(within) > 0 {
			top = within[len(within)-1]
		}
		i += size
		switch {
		case r == escape && rest != "":
			next, size := utf8.DecodeRuneInString(rest)
			i += size
			if next == '$' {
				b.WriteString(literalDollar)
			} else {
				b.WriteRune(r)
				b.WriteRune(next)
			}
		case r == '\'' && top != '"':
			quoted, _, closed := strings.Cut(rest, "'")
			b.WriteString("'" + literal(quoted))
			i += len(quoted)
			if closed {
				b.WriteByte('\'')
				i++
			}
		case r == '"' && top == '"', r == '}' && top == '{':
			within = within[:len(within)-1]
			b.WriteRune(r)
		case r == '"':
			within = append(within, '"')
			b.WriteRune(r)
		case r == '$' && strings.HasPrefix(rest, "{"):
			within = append(within, '{')
			b.WriteString("${")
			i++
		case r == '$':
			name := rest[:len(rest)-len(strings.TrimLeftFunc(rest, isNameRune))]
			if after := rest[len(name):]; name != "" && after != "" && strings.ContainsAny(after[:1], `"'`+string(escape)) {
				b.WriteString("${" + name + "}")
				i += len(name)
			} else {
				b.WriteByte('$')
			}
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
