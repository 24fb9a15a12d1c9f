//go:build linux

package envd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"testing"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/internal/gen/process"
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

// TestInputInTurn checks that one caller at a time writes. A caller that waits for its turn returns when its
// context ends, and all callers return when the input ends.
func TestInputInTurn(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	must.Do(t, err)
	defer r.Close()
	in := newInput(w)
	first := make(chan error, 1)
	go func() { first <- in.write(patience.Context(t), make([]byte, 2*maxWaiting)) }()
	_, err = io.ReadFull(r, make([]byte, 1)) // it is being written
	must.Do(t, err)
	for size, want := range map[int]error{0: context.Canceled, 1: errInputFull} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if size == 0 {
			in.waiting.Add(-2 * maxWaiting) // so that it waits for its turn
		}
		if err := in.write(ctx, make([]byte, size)); !errors.Is(err, want) {
			t.Errorf("%d bytes meanwhile: got error %v, want %v", size, err, want)
		}
		if size == 0 {
			in.waiting.Add(2 * maxWaiting)
		}
	}
	must.Do(t, errors.Join(in.close(), in.close()))
	must.Is(t, patience.Receive(t, "the end of the writer", first), errStdinClosed)
	must.Is(t, in.write(patience.Context(t), []byte("x")), errStdinClosed)
	must.Is(t, in.write(patience.Context(t), []byte("x")), errStdinClosed) // it was its turn again
	if n := in.waiting.Load(); n != 0 {
		t.Errorf("%d bytes still count as waiting, want 0", n)
	}
}

// TestInputIsBoundedInBytes checks how much may wait for a process.
func TestInputIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		waiting, size int64
		want          error
	}{
		{0, maxWaiting + 1, nil}, {maxWaiting - 1, 1, nil}, {maxWaiting, 1, errInputFull}, {1, maxWaiting, errInputFull}, {1, maxWaiting - 1, nil},
	} {
		null, err := os.OpenFile("/dev/null", os.O_WRONLY, 0)
		must.Do(t, err)
		in := newInput(null)
		in.waiting.Store(tt.waiting)
		err = in.write(t.Context(), make([]byte, tt.size))
		if full := errors.Is(err, errInputFull); full != (tt.want != nil) || in.waiting.Load() != tt.waiting {
			t.Errorf("%d bytes after %d: got error %v and %d bytes that wait, want error %v", tt.size, tt.waiting, err, in.waiting.Load(), tt.want)
		}
		must.Do(t, in.close())
	}
}

// TestInputThatCannotBeClosed checks that a failure to close an input is reported once, and that other calls succeed.
func TestInputThatCannotBeClosed(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	must.Do(t, errors.Join(err, r.Close(), w.Close()))
	ps := newProcesses(nil, slog.New(slog.DiscardHandler))
	ps.live[7], ps.live[8] = &running{pid: 7, stdin: newInput(w)}, &running{pid: 8}
	s := &processService{&Server{processes: ps}}
	for n, tt := range []struct {
		pid  uint32
		want connect.Code // 0: none
	}{{7, connect.CodeUnknown}, {7, 0}, {8, 0}, {9, connect.CodeNotFound}} {
		_, err := s.CloseStdin(t.Context(), connect.NewRequest(&process.CloseStdinRequest{Process: byPid(tt.pid)}))
		if (err == nil) != (tt.want == 0) || err != nil && connect.CodeOf(err) != tt.want {
			t.Errorf("the call %d: got error %v, want %v", n, err, tt.want)
		}
	}
}
