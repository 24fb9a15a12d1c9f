//go:build linux

package gvisor_test

import (
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/link"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// TestManyConnections checks that however many connections to one kind of ports are open,
// ports of programs or the sandbox's own, the others answer; more of them are refused for that
// reason, until some are closed.
func TestManyConnections(t *testing.T) {
	t.Parallel()
	s, run := start(t, open(t), nil)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	const program = 3000
	const listen = `mkfifo ready; (setsid python3 -c '
import selectors, socket
listener = socket.create_server(("127.0.0.1", %d), backlog=1024)
print("ready", flush=True)
s = selectors.DefaultSelector()
s.register(listener, selectors.EVENT_READ)
while True:
    for key, _ in s.select():
        if key.fileobj is listener:
            s.register(listener.accept()[0], selectors.EVENT_READ)
        elif not key.fileobj.recv(100):
            s.unregister(key.fileobj)
            key.fileobj.close()' >ready 2>&1 </dev/null &); head -n 1 ready`
	if got := run(fmt.Sprintf(listen, program)); got != "ready" {
		t.Fatal(got)
	}
	fill := func(port int) (conns []net.Conn) {
		t.Helper()
		for {
			conn, err := s.Dial(t.Context(), port)
			if errors.Is(err, engine.ErrTooMany) {
				return conns
			}
			if err != nil {
				t.Fatalf("connection %d to port %d: %v", len(conns), port, err)
			}
			t.Cleanup(func() { conn.Close() })
			conns = append(conns, conn)
		}
	}
	conns := fill(program)
	if len(conns) != link.MaxStreams {
		t.Errorf("got %d connections to a program, want %d", len(conns), link.MaxStreams)
	}
	if got := run("echo hello"); got != "hello" {
		t.Errorf("a command: got %q", got)
	}
	for _, conn := range fill(protocol.PortEnvd) {
		conn.Close()
	}
	conns[0].Close()
	patience.Until(t, "there is room for another connection", func() bool {
		conn, err := s.Dial(t.Context(), program)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}
