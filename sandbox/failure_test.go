package sandbox

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"connectrpc.com/connect"
)

// What a sandbox says may be printed on a terminal, as a part of an error.
func TestForeignTextInErrors(t *testing.T) {
	t.Parallel()
	hostile := "no\x1b]0;title\a\n\u009b2J" + strings.Repeat("é", 600)
	for what, err := range map[string]error{
		"an answer of the daemon": translated(connect.NewWireError(connect.CodeInternal, errors.New(hostile))),
		"an overflow of a watch":  watchFailure(connect.NewWireError(connect.CodeResourceExhausted, errors.New(hostile))),
		"the end of a command":    &ExitError{&CommandResult{ExitCode: 1, Stderr: strings.ReplaceAll(hostile, "\n", "\r")}},
	} {
		text := err.Error()
		if strings.ContainsAny(text, "\x1b\a\r\n\u009b") || !utf8.ValidString(text) || !strings.Contains(text, "no ]0;title") || !strings.HasSuffix(text, "é…") {
			t.Errorf("%s: %q", what, text)
		}
	}
}
