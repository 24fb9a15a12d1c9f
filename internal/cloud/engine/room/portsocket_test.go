//go:build linux

package room

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/link"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// echo is a program that answers on a free port of an address. It writes the port to a file.
const echo = `import resource, selectors, socket, sys
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
listener = socket.create_server((sys.argv[1], 0), family=socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, backlog=1024)
with open(sys.argv[2], "w") as f: f.write(str(listener.getsockname()[1]))
s = selectors.DefaultSelector()
s.register(listener, selectors.EVENT_READ)
while True:
    for key, _ in s.select():
        if key.fileobj is listener:
            s.register(listener.accept()[0], selectors.EVENT_READ)
            continue
        data = key.fileobj.recv(100)
        if data: key.fileobj.send(data)
        else: s.unregister(key.fileobj); key.fileobj.close()
`

// startEcho runs echo in a sandbox, and returns its port.
func startEcho(t *testing.T, s *Sandbox, address string) (port int) {
	t.Helper()
	name := strings.TrimSpace(sh(t, s, "mktemp -u").Output)
	background(t, s, fmt.Sprintf("exec python3 -c '%s' %s %s", echo, address, name))
	patience.Until(t, "the program listens", func() bool {
		_, err := fmt.Sscan(sh(t, s, "cat "+name+" 2>/dev/null").Output, &port)
		return err == nil
	})
	return port
}

// echoed checks that a connection leads to echo.
func echoed(t *testing.T, conn net.Conn) {
	t.Helper()
	got := make([]byte, 4)
	if _, err := io.WriteString(conn, "ping"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "ping" {
		t.Fatalf("got %q, %v", got, err)
	}
}

// TestManyConnections checks that the sandbox's own ports answer regardless of the number of
// open connections to ports of programs, also on a machine with few files. More connections
// are refused, until some are closed.
func TestManyConnections(t *testing.T) {
	t.Parallel()
	for _, level := range []engine.Isolation{engine.Full, engine.None} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			s := newSandbox(t, newRoomOn(t, level), fewFiles(t))
			var ports []int
			for range 8 {
				ports = append(ports, startEcho(t, s, "127.0.0.1"))
			}
			var conns []net.Conn
			for i := range link.MaxStreams {
				conn, err := s.Dial(t.Context(), ports[i%len(ports)])
				if err != nil {
					t.Fatalf("connection %d: %v", i, err)
				}
				defer conn.Close()
				conns = append(conns, conn)
			}
			for _, conn := range conns {
				echoed(t, conn)
			}
			if _, err := s.Dial(t.Context(), ports[0]); !errors.Is(err, engine.ErrTooMany) {
				t.Errorf("one more: got %v, want %v", err, engine.ErrTooMany)
			}
			if got := sh(t, s, "cat /proc/self/stat | wc -l"); got.Output != "1\n" {
				t.Errorf("a command meanwhile: got %+v", got)
			}
			conns[0].Close()
			conn, err := s.Dial(t.Context(), ports[1])
			if err != nil {
				t.Fatalf("after one was closed: %v", err)
			}
			defer conn.Close()
			echoed(t, conn)
		})
	}
}

// TestManyConnectionsToEnvd checks that connections to envd over its bound are refused for
// that reason, that programs inside cannot take those of clients, and that commands still
// run in both cases.
func TestManyConnectionsToEnvd(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, newRoomWith(t, Options{Binary: withDetector}), fewFiles(t))
	background(t, s, `exec python3 -c '
import socket, time
held = []
for _ in range(300):
    held.append(socket.create_connection(("127.0.0.1", 49983)))
open("held", "w").close()
time.sleep(1000)'`)
	patience.Until(t, "a program has many connections", func() bool { return sh(t, s, "ls held").Status == 0 })
	var conns []net.Conn
	for {
		conn, err := s.Dial(t.Context(), 49983)
		if errors.Is(err, engine.ErrTooMany) {
			break
		}
		if err != nil {
			t.Fatalf("connection %d: %v", len(conns), err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	if len(conns) < 150 {
		t.Errorf("only %d connections are possible", len(conns))
	}
	request := `{"Command": "echo hello | cat"}`
	fmt.Fprintf(conns[0], "POST /run HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s", len(request), request)
	if answer, err := io.ReadAll(conns[0]); err != nil || !strings.Contains(string(answer), `"hello\n"`) {
		t.Errorf("a command meanwhile: got %s, %v", answer, err)
	}
	conns[1].Close()
	patience.Until(t, "another connection is possible", func() bool {
		conn, err := s.Dial(t.Context(), 49983)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

// fewFiles returns options with which a process of a sandbox may open as many files as on a
// machine whose fs.file-max is 800,000.
func fewFiles(t *testing.T) engine.SandboxOptions {
	t.Helper()
	machine, err := cgroup.ReadNumber("/proc/sys/fs/file-max")
	must.Do(t, err)
	const files = 800_000 / 2 / 1024
	return engine.SandboxOptions{Limits: engine.Limits{MaxProcesses: int(min(machine/2/files, 30_000))}}
}

// TestPortOfEitherAddress checks that a program may listen on the loopback of either version
// of IP, and that a port without a listener is closed.
func TestPortOfEitherAddress(t *testing.T) {
	t.Parallel()
	for _, level := range []engine.Isolation{engine.Full, engine.None} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			s := newSandbox(t, newRoomOn(t, level), engine.SandboxOptions{})
			for _, address := range []string{"127.0.0.1", "0.0.0.0", "::1", "::"} {
				port := startEcho(t, s, address)
				conn, err := s.Dial(t.Context(), port)
				if err != nil {
					t.Fatalf("%s: %v", address, err)
				}
				echoed(t, conn)
				if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
					t.Error(err)
				}
				if rest, err := io.ReadAll(conn); len(rest) > 0 || err != nil {
					t.Errorf("%s: after the end of one direction: got %q, %v", address, rest, err)
				}
				conn.Close()
			}
			if _, err := s.Dial(t.Context(), 1); !errors.Is(err, engine.ErrPortClosed) {
				t.Errorf("got %v, want %v", err, engine.ErrPortClosed)
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := s.Dial(ended, 1); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want %v", err, context.Canceled)
			}
		})
	}
}
