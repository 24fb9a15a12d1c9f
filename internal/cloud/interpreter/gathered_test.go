//go:build linux

package interpreter

import (
	"errors"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/kernel"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/must"
)

// written is a connection that only records what is written to it.
type written struct {
	net.Conn
	writes   []string
	deadline time.Time
	err      error
}

func (w *written) Write(data []byte) (int, error) {
	w.writes = append(w.writes, string(data))
	return len(data), w.err
}

func (w *written) SetWriteDeadline(deadline time.Time) error {
	w.deadline = deadline
	return nil
}

// TestGathered checks that writes between keep and release are one write, in order, that no more than
// gatheredBytes are kept, and that no deadline of a control message ends the write.
func TestGathered(t *testing.T) {
	t.Parallel()
	to := &written{deadline: time.Now()}
	g := &gathered{Conn: to}
	write := func(text string) {
		t.Helper()
		if n, err := g.Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("got %d, %v, want %d", n, err, len(text))
		}
	}
	write("a")
	must.Do(t, g.release())
	g.keep()
	write("b")
	write("c")
	must.Do(t, g.release())
	must.Do(t, g.release())
	write("d")
	g.keep()
	exactly, over := strings.Repeat("x", gatheredBytes), strings.Repeat("y", gatheredBytes+1)
	write(exactly)
	write("e")
	g.keep()
	write("f")
	write(over)
	must.Do(t, g.release())
	if want := []string{"a", "bc", "d", exactly, "e", "f", over}; !slices.Equal(to.writes, want) {
		t.Errorf("got %.40q, want %.40q", to.writes, want)
	}
	if !to.deadline.IsZero() {
		t.Error("a deadline is left")
	}
	to.err = net.ErrClosed
	g.keep()
	write("g")
	if err := g.release(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, want %v", err, net.ErrClosed)
	}
	g.keep()
	write("h")
	before := len(to.writes)
	if n, err := g.Write([]byte(over)); n != 0 || !errors.Is(err, net.ErrClosed) || len(to.writes) != before+1 {
		t.Errorf("after a failed write: got %d, %v and %d more writes, want 0, %v and one", n, err, len(to.writes)-before, net.ErrClosed)
	}
	if conn, _, err := (&gathering{ResponseWriter: httptest.NewRecorder()}).Hijack(); conn != nil || err == nil {
		t.Errorf("a response without a connection: got %v, %v, want an error", conn, err)
	}
}

// TestMoreIsSentTogether checks that an event that another one follows does not wake the connection,
// unless the next one has no space: it would wait for ever then.
func TestMoreIsSentTogether(t *testing.T) {
	t.Parallel()
	b := &sessionBuffer{own: "o", wake: make(chan struct{}, 1), changed: make(chan struct{})}
	b.deliver(t.Context(), kernel.Event{Channel: jupyter.Shell, Type: "execute_reply", More: true})
	if len(b.wake) != 0 {
		t.Error("the connection sends the reply alone")
	}
	b.deliver(t.Context(), kernel.Event{Channel: jupyter.IOPub, Type: "status"})
	if len(b.wake) != 1 || len(b.messages) != 2 {
		t.Errorf("%d tokens, %d messages, want 1 and 2", len(b.wake), len(b.messages))
	}
	<-b.wake
	if b.put(&jupyter.Message{}, 2*messageOverhead, true) || len(b.wake) != 1 {
		t.Error("a message that waits for space leaves the ones before it unsent")
	}
}
