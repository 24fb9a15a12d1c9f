package cli

import (
	"errors"
	"strings"
)

// shellLine makes the line a sandbox's shell is to run: one word is a line of
// shell as it is, several are words that reach the command unchanged.
func shellLine(words []string) (string, error) {
	for _, word := range words {
		if strings.ContainsRune(word, 0) {
			return "", errors.New("a command cannot hold a NUL byte")
		}
	}
	if len(words) == 1 {
		return words[0], nil
	}
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = shellQuote(word)
	}
	return strings.Join(quoted, " "), nil
}

// shellQuote returns word so that a POSIX shell reads it as one word.
func shellQuote(word string) string {
	plain := word != ""
	for _, c := range []byte(word) {
		if !isPlain(c) {
			plain = false
			break
		}
	}
	if plain {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// isPlain says that c means itself anywhere in a word. '=' does not: the first
// word of a line would become an assignment.
func isPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("_-./,:@%+", c) >= 0
}
