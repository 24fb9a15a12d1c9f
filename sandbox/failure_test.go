package sandbox

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/api"
)

// Text from a sandbox may be printed on a terminal, as a part of an error.
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

// TestMissingSandbox checks that the error has the service's reason for the end of a sandbox.
func TestMissingSandbox(t *testing.T) {
	t.Parallel()
	answer := api.ResponseError(http.MethodGet, "/sandboxes/i1", http.StatusNotFound, http.Header{}, []byte(`{"code":404,"message":"it was killed at noon"}`))
	err := missing("i1", answer)
	if !errors.Is(err, ErrGone) || !errors.Is(err, api.ErrNotFound) || err.Error() != "i1 is gone: it was killed at noon" {
		t.Errorf("%v", err)
	}
}
