package sandbox

import (
	"errors"
	"strings"

	"github.com/e2bctl/e2bctl/internal/shell"
)

// shellLine returns the line for a sandbox's shell. A single word is itself the line. Several words
// are quoted, so that they reach the command unchanged.
func shellLine(words []string) (string, error) {
	for _, word := range words {
		if strings.ContainsRune(word, 0) {
			return "", errors.New("a command cannot contain a NUL byte")
		}
	}
	if len(words) == 1 {
		return words[0], nil
	}
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = shell.Quote(word)
	}
	return strings.Join(quoted, " "), nil
}
