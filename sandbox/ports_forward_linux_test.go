package sandbox

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// After Close no client is connected, even while a process that is being started still
// has the descriptor of the listener.
func TestForwardCloseWithCopy(t *testing.T) {
	t.Parallel()
	f, err := newService(t).sandbox().Forward(t.Context(), "127.0.0.1:0", 3000, nil)
	must.Do(t, err)
	copied, err := f.listener.(*net.TCPListener).File()
	must.Do(t, err)
	defer copied.Close()
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	conn, err := net.Dial("tcp", f.Addr().String())
	if err == nil {
		_ = conn.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after Close: %v, want a refused connection", err)
	}
}
