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
