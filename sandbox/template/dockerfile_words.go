package template

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// literalDollar stands for a dollar sign that begins no variable, in words and values, until
// they are sent. It is a code point that no text has.
const literalDollar = "\ufdd0"

// maxValue bounds the value of a variable: programs cannot be given a longer one.
const maxValue = 128 << 10

// variables are those that the file has set so far. Their values still refer to what only
// the service knows, such as the variables of the image.
type variables map[string]string

// Get implements shell.EnvGetter. A value that refers to others is not known yet.
func (v variables) Get(name string) (string, bool) {
	value, ok := v[name]
	return value, ok && !strings.Contains(value, "$")
}

// Keys implements shell.EnvGetter.
func (v variables) Keys() []string { return slices.Collect(maps.Keys(v)) }

// value returns a word as Docker reads it: without quotes and escapes, and with the values of
// the variables that are known. References to others stay, for the service to resolve.
func (c *conversion) value(word string) (string, error) {
	value, _, err := c.words.ProcessWord(markLiteral(word, c.escape), c.values)
	if err == nil && len(value) > maxValue {
		err = errors.New("the value of a variable is longer than 128 KiB")
	}
	return value, err
}

// expanding returns a value for a step in which services replace variables.
func expanding(value string) string { return strings.ReplaceAll(value, literalDollar, `\$`) }

// resolved returns a word for a step in which services replace no variables.
func (c *conversion) resolved(word string) (string, error) {
	value, err := c.value(word)
	return strings.ReplaceAll(value, literalDollar, "$"), err
}

// literal returns text in the form of a value without variables: every dollar sign is literal.
func literal(text string) string { return strings.ReplaceAll(text, "$", literalDollar) }

// markLiteral replaces the dollar signs of a word that quotes or escapes make literal: what
// reads the words drops both, and leaves no difference to a variable that it does not know.
// It writes $NAME as ${NAME} where a quote or an escape ends the name, for the same reason.
func markLiteral(word string, escape rune) string {
	var b strings.Builder
	var within []byte // the double quotes and braces that are open
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
