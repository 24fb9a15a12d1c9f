//go:build linux

package gvisor_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker/dockertest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/gvisor"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room"
	"github.com/e2bctl/e2bctl/internal/cloud/envdclient"
	"github.com/e2bctl/e2bctl/internal/cloud/gvisorenv/gvisortest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/pinned"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(dockertest.Ending{M: m}) }

// roomEngine is a room as an engine.
type roomEngine struct{ *room.Room }

func (r roomEngine) NewSandbox(ctx context.Context, o engine.SandboxOptions) (engine.Sandbox, error) {
	s, err := r.Room.NewSandbox(ctx, o)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// open returns an engine. The cache of files that are closed to others is beside its directory.
func open(t *testing.T) engine.Engine {
	t.Helper()
	program := gvisortest.Need(t)
	dir := t.TempDir() + "/instance"
	must.Do(t, os.Mkdir(dir, 0o700))
	r, err := room.Start(t.Context(), room.Options{Dir: dir, Binary: dockertest.Program(t), Isolation: engine.Full, Runsc: program.Path})
	must.Do(t, err)
	e, err := gvisor.New(t.Context(), roomEngine{r}, gvisor.Options{Runsc: program, Binary: dockertest.Program(t)})
	must.Do(t, err)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close the engine: %v", err)
		}
	})
	return e
}

// start returns a sandbox, and a function that runs a command in it.
func start(t *testing.T, e engine.Engine, egress engine.Egress) (engine.Sandbox, func(command string) string) {
	t.Helper()
	id := strings.ToLower(t.Name())
	config := guest.Config{SandboxID: id, TemplateID: "base", Path: room.SearchPath()}
	s, err := e.NewSandbox(t.Context(), engine.SandboxOptions{ID: id, Config: config, Egress: egress})
	must.Do(t, err)
	return s, shellOf(t, s)
}

// shellOf returns a function that runs a command in a sandbox.
func shellOf(t *testing.T, s engine.Sandbox) func(command string) string {
	c := envdclient.New(s.Dial, "")
	t.Cleanup(c.Close)
	return func(command string) string {
		t.Helper()
		var out strings.Builder
		run := envdclient.Shell(command)
		run.User, run.Stdout, run.Stderr = "user", &out, &out
		err := c.Run(t.Context(), run)
		if _, failed := errors.AsType[*envdclient.ExitError](err); err != nil && !failed {
			t.Fatalf("%s: %v", command, err)
		}
		return strings.TrimSpace(out.String())
	}
}

// echo is an egress that sends back what comes, behind the address that was asked for.
type echo struct {
	mu    sync.Mutex
	asked []string // of names
	conns sync.WaitGroup
}

func (*echo) Dial(context.Context, string, uint16) (net.Conn, error) {
	return nil, errors.New("nothing uses the proxy")
}

func (e *echo) Connect(_ context.Context, inside *net.TCPConn) (net.Conn, error) {
	ours, theirs := net.Pipe()
	e.conns.Go(func() {
		defer ours.Close()
		if _, err := io.WriteString(ours, inside.LocalAddr().String()+" "); err != nil {
			return
		}
		_, _ = io.Copy(ours, ours) // until either end has gone
	})
	return theirs, nil
}

// Answer says that every name is 192.0.2.7.
func (e *echo) Answer(_ context.Context, query []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	e.mu.Lock()
	e.asked = append(e.asked, q.Name.String())
	e.mu.Unlock()
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	if q.Type == dnsmessage.TypeA {
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1},
			Body:   &dnsmessage.AResource{A: netip.AddrFrom4([4]byte{192, 0, 2, 7}).As4()},
		}}
	}
	answer, err := m.Pack()
	if err != nil {
		return nil
	}
	return answer
}

func (*echo) Closed() bool { return false }

// closed is an egress that nothing reaches.
type closed struct{ *echo }

func (closed) Closed() bool { return true }

func (closed) Connect(context.Context, *net.TCPConn) (net.Conn, error) {
	return nil, errors.New("it is closed")
}

// TestEgress checks that data that programs in gVisor send to any address arrives at the egress of
// their sandbox, that the egress answers names, and that nothing is reached when it is closed.
func TestEgress(t *testing.T) {
	t.Parallel()
	e := open(t)
	if got := e.Report(); got.Egress != engine.EgressTransparent {
		pinned.Skip(t, "this machine has no transparent egress: %s", got.Egress)
	}
	egress := &echo{}
	s, run := start(t, e, egress)
	const send = `python3 -c '
import socket, sys
s = socket.create_connection((sys.argv[1], 4321), 60)
s.sendall(b"hello")
got = b""
while not got.endswith(b"hello"): got += s.recv(100)
print(got.decode())' `
	for host, want := range map[string]string{
		"192.0.2.1":     "192.0.2.1:4321 hello",
		"10.1.2.3":      "10.1.2.3:4321 hello",
		"169.254.0.22":  "169.254.0.22:4321 hello", // of the listeners themselves
		"there.example": "192.0.2.7:4321 hello",
	} {
		if got := run(send + host); got != want {
			t.Errorf("%s: got %q, want %q", host, got, want)
		}
	}
	if got := run(send + "169.254.0.25 2>&1"); strings.Contains(got, "hello") && !strings.HasPrefix(got, "169.254.0.25:") {
		t.Errorf("the other end of the device: got %q, want the egress or nothing", got)
	}
	if got := run(`python3 -c 'import socket; socket.create_connection(("::1", 9), 5)' 2>&1 | tail -1`); !strings.Contains(got, "refused") {
		t.Errorf("loopback: got %q, want that nothing listens", got)
	}
	s.SetEgress(closed{egress})
	if got := run(send + "192.0.2.1 2>&1 | tail -1"); strings.Contains(got, "hello") {
		t.Errorf("closed: got %q, want nothing", got)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	egress.conns.Wait()
}
