// Package shell quotes words for POSIX shells, and splits lines into words.
package shell

import "strings"

// Quote returns word in a form that a POSIX shell reads as one word. If word needs no quotes, Quote
// returns it unchanged. Otherwise it puts word in single quotes.
func Quote(word string) string {
	if word != "" && !strings.ContainsFunc(word, special) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// special reports whether c may have a special meaning somewhere in a word. '=' is special, because
// a word with '=' at the start of a line could be an assignment.
func special(c rune) bool {
	plain := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("_-./,:@%+", c)
	return !plain
}

// Words splits a line into words, as a POSIX shell does. If the shell would do more with the line
// than split and unquote it, ok is false. For a line of words that [Quote] has written, ok is true.
// With the words, a program can be started without a shell.
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
