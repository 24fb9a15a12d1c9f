package agent

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
)

// printingHost answers like a kernel that prints to both streams.
type printingHost struct {
	*pythonHost
	text string
}

func (h *printingHost) execute(_ context.Context, _ string, _ jupyter.ExecuteRequest, handler kernelconn.Handler) (jupyter.ExecuteReply, error) {
	for _, name := range []string{"stdout", "stderr"} {
		content, err := json.Marshal(jupyter.StreamContent{Name: name, Text: h.text})
		if err == nil {
			err = handler.Message(&jupyter.Message{Header: jupyter.Header{MsgType: "stream"}, Content: content})
		}
		if err != nil {
			return jupyter.ExecuteReply{}, err
		}
	}
	return jupyter.ExecuteReply{Status: "ok"}, nil
}

// fullWriter takes a number of writes.
type fullWriter struct {
	strings.Builder
	room int
}

var errFull = errors.New("no room")

func (w *fullWriter) Write(p []byte) (int, error) {
	if w.room--; w.room < 0 {
		return 0, errFull
	}
	return w.Builder.Write(p)
}

// Output that was held back as a possible secret is there when the code has ended.
// If it cannot be written, that is an error like any other.
func TestHeldOutput(t *testing.T) {
	t.Parallel()
	secret := longSecret(100)
	text := "begin " + secret[:40]
	for room, want := range map[int]error{2: nil, 1: errFull} {
		var r records
		run := r.run(t, mustRedactor(t, secret)).bridge.run
		run.host = &printingHost{text: text}
		out, errOut := &fullWriter{room: room}, &fullWriter{room: 2}
		run.params.Stdout, run.params.Stderr = out, errOut
		_, err := run.Exec(t.Context(), "x")
		if want != nil && !errors.Is(err, want) {
			t.Errorf("with room for %d writes: got %v, want %v", room, err, want)
		}
		if got := out.String(); want == nil && got != text {
			t.Errorf("stdout: got %q, want %q", got, text)
		}
		if got := errOut.String(); got != text {
			t.Errorf("stderr: got %q, want %q", got, text)
		}
	}
}
