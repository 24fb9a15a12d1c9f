// Package shell writes words for POSIX shells.
package shell

import "strings"

// Quote returns word so that a POSIX shell reads it as one word: unchanged if that
// is enough, otherwise in single quotes.
func Quote(word string) string {
	if word != "" && !strings.ContainsFunc(word, special) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// special reports whether c may mean something other than itself somewhere in a
// word. '=' does: at the start of a line it could make the word an assignment.
func special(c rune) bool {
	plain := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("_-./,:@%+", c)
	return !plain
}

// Words returns the words of a line that a POSIX shell would only split and unquote, such as words that [Quote]
// has written. Where there is no shell, a program can be started with these words directly. ok is false for any
// other line.
func Words(line string) (words []string, ok bool) {
	var word strings.Builder
	begun, escaped, quote := false, false, rune(0)
	for _, c := range line {
		switch {
		case escaped && c != '\n', quote == '\'' && c != quote, quote == '"' && !strings.ContainsRune("\"$`\\", c):
			word.WriteRune(c)
			escaped = false
		case quote != 0 && c == quote:
			quote = 0
		case escaped, quote != 0:
			return nil, false
		case c == '\'', c == '"':
			begun, quote = true, c
		case c == '\\':
			begun, escaped = true, true
		case c != ' ' && c != '\t':
			if special(c) && (c != '=' || len(words) == 0) {
				return nil, false
			}
			word.WriteRune(c)
			begun = true
		case begun:
			words = append(words, word.String())
			word.Reset()
			begun = false
		}
	}
	if begun {
		words = append(words, word.String())
	}
	return words, quote == 0 && !escaped && len(words) > 0
}
