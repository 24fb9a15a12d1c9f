package pyenv

import (
	"strings"

	"github.com/e2bctl/e2bctl/internal/lazyregexp"
)

// tailSize bounds the bytes of a program's output that an error contains.
const tailSize = 1 << 10

// tail keeps the last bytes that are written to it. The zero value is ready to use.
type tail struct {
	kept []byte
	cut  bool // earlier bytes were dropped
}

func (t *tail) Write(data []byte) (int, error) {
	t.kept = append(t.kept, data[max(0, len(data)-tailSize):]...)
	t.cut = t.cut || len(data) > tailSize || len(t.kept) > tailSize
	t.kept = t.kept[max(0, len(t.kept)-tailSize):]
	return len(data), nil
}

var credentials = lazyregexp.New(`://[^/@\s]*@`)

// withoutCredentials removes the user and the password from every URL in text.
func withoutCredentials(text string) string { return credentials().ReplaceAllString(text, "://") }

// suffix returns ": " and the last lines in one line. It removes credentials, because the URL of an
// index may contain them. If nothing was written, suffix returns "".
func (t *tail) suffix() string {
	text := strings.ToValidUTF8(string(t.kept), "?")
	if t.cut { // the first line may begin in the middle of a password
		_, text, _ = strings.Cut(text, "\n")
	}
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	if len(lines) == 0 {
		return ""
	}
	return ": " + withoutCredentials(strings.Join(lines, "; "))
}
