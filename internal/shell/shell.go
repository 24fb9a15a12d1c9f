// Package shell writes words for POSIX shells.
package shell

import "strings"

// Quote returns word so that a POSIX shell reads it as one word: as it is where
// that is enough, in single quotes elsewhere.
func Quote(word string) string {
	if word != "" && !strings.ContainsFunc(word, special) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// special reports whether c may mean something else than itself somewhere in a
// word. '=' does: the first word of a line would become an assignment.
func special(c rune) bool {
	plain := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("_-./,:@%+", c)
	return !plain
}
