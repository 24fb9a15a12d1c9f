//go:build linux

package envd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestInputAfterOneThatWasGivenUp checks that input whose write was cancelled, because the process
// did not read, does not keep later input out.
func TestInputAfterOneThatWasGivenUp(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	must.Do(t, err)
	defer r.Close()
	in := newInput(w)
	full := make([]byte, maxWaiting) // more than a pipe holds
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	given := make(chan error, 1)
	go func() { given <- in.write(ctx, full) }()
	if _, err := io.ReadFull(r, make([]byte, 1)); err != nil { // it is being written
		t.Fatal(err)
	}
	cancel()
	if err := patience.Receive(t, "the end of the input that is given up", given); !errors.Is(err, context.Canceled) {
		t.Fatalf("the input that is given up: got %v, want it to end with its context", err)
	}
	read := make(chan []byte, 1)
	go func() {
		all, _ := io.ReadAll(r)
		read <- all
	}()
	if err := in.write(patience.Context(t), []byte("next")); err != nil {
		t.Errorf("the next input: %v", err)
	}
	// One more finds the bound as if no write had been cancelled.
	if err := in.write(patience.Context(t), full); err != nil {
		t.Errorf("a large one after it: %v", err)
	}
	must.Do(t, in.close())
	all := patience.Receive(t, "the end of the input", read)
	if _, after, _ := bytes.Cut(all, []byte("next")); len(after) != len(full) {
		t.Errorf("%d bytes came after the next input, want %d", len(after), len(full))
	}
	if n := in.waiting.Load(); n != 0 {
		t.Errorf("%d bytes still count as waiting, want 0", n)
	}
}
