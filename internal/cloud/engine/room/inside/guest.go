//go:build linux

package inside

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/orphan"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/cloud/pty"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// Guest is the in-sandbox API: the sandbox as its agent sees it. It is safe for
// concurrent use.
type Guest struct {
	// Config is SandboxOptions.Config.
	Config json.RawMessage
	// Users are root and user, in this order. If the server has only one id to
	// give, both have that id.
	Users []guest.User
	// Root is the sandbox's root directory: / if it has a file system of its own.
	Root string
	// Temp is the directory for temporary files.
	Temp string
	// Run is the directory for the agent's own files; it need not exist.
	Run string
	// Egress reports whether DialEgress can succeed. Without namespaces it cannot,
	// because no program inside could reach a proxy of the agent's.
	Egress bool

	line *wire.Conn
	// OOMKills and memoryUse are the files of the group with these numbers; nil
	// without a group.
	oomKills, memoryUse *os.File
	inside              bool          // the loopback is the sandbox's own
	restricted          bool          // in place, without access to /dev/pts
	streams             chan struct{} // one for each stream being opened or carried

	mu        sync.Mutex
	listeners map[uint16]*guestListener
	pending   map[uint64]chan egressed
	next      uint64
}

type egressed struct {
	files []*os.File
	err   error
}

// EgressError says that the server refused to connect to an address.
type EgressError struct {
	Host   string
	Port   uint16
	Reason string
	Denied bool // by policy, so trying again is useless
}

func (e *EgressError) Error() string {
	return "runtime: connect to " + net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))) + ": " + e.Reason
}

// runDirectory is [Guest.Run] if the sandbox has a file system of its own.
const runDirectory = "/run/e2b"

// runAgent is the second stage of a sandbox. Its restrictions are already in force.
func runAgent(ctx context.Context, c *wire.Conn, raw json.RawMessage, files []*os.File, serve func(context.Context, *Guest) error) error {
	if err := restrictAgent(); err != nil {
		return err
	}
	if err := endureSignals(); err != nil {
		return err
	}
	var spec wire.AgentSpec
	if err := decodeSpec(raw, &spec); err != nil {
		return err
	}
	if len(files) != 1 && len(files) != 3 {
		return fmt.Errorf("%w: an agent with %d files", wire.ErrProtocol, len(files))
	}
	config, err := io.ReadAll(io.NewSectionReader(files[0], 0, guest.MaxConfig))
	files[0].Close()
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	g := &Guest{
		Config:    config,
		Users:     users(spec),
		Root:      "/",
		Temp:      "/tmp",
		Run:       runDirectory,
		inside:    spec.Place == nil,
		Egress:    spec.Egress && spec.Place == nil,
		line:      c,
		streams:   make(chan struct{}, wire.MaxStreams),
		listeners: make(map[uint16]*guestListener),
		pending:   make(map[uint64]chan egressed),
	}
	if spec.Place == nil {
		if err := writeNames(spec.Hostname); err != nil {
			return err
		}
	} else {
		g.Root, g.Temp, g.Run = spec.Place.Dir, spec.Place.Temp(), spec.Place.Run()
		g.restricted = spec.Place.Restricted
		if err := orphan.BecomeReaper(); err != nil { // pid 1 is one anyway
			return err
		}
	}
	if len(files) == 3 {
		g.oomKills, g.memoryUse = files[1], files[2]
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		cancel(g.receive(ctx))
		// The server is gone, and this process is about to be killed from outside;
		// serve gets a moment to notice.
		time.AfterFunc(time.Second, func() { unix.Exit(1) })
	}()
	return serve(ctx, g)
}

func users(spec wire.AgentSpec) []guest.User {
	root := guest.User{Name: "root", Home: guest.RootHome, Shell: guest.LoginShell}
	user := guest.User{Name: "user", Home: guest.UserHome, Shell: guest.LoginShell}
	if spec.Place != nil {
		root.UID, root.GID, root.Home = uint32(os.Getuid()), uint32(os.Getgid()), spec.Place.Home()
		user.UID, user.GID, user.Home = root.UID, root.GID, root.Home
	}
	if spec.Ranged {
		const sudo = 27
		user.UID, user.GID = protocol.UserID, protocol.UserID
		user.Credential = &syscall.Credential{Uid: protocol.UserID, Gid: protocol.UserID, Groups: []uint32{sudo}}
	}
	return []guest.User{root, user}
}

// OOMKills returns how many processes of the sandbox have been killed so far
// because it reached its memory limit; 0 if no control group counts them.
func (g *Guest) OOMKills() int {
	if g.oomKills == nil {
		return 0
	}
	return cgroup.CountOOMKills(g.oomKills)
}

// MemoryUse returns how much memory the sandbox uses, including files that it keeps
// in memory, and how much more is taken by copies of what is on disks. known is
// false if no control group counts it.
func (g *Guest) MemoryUse() (used, cache uint64, known bool) {
	if g.memoryUse == nil {
		return 0, 0, false
	}
	return cgroup.ReadMemoryUse(g.memoryUse)
}

// Ready tells the server that the sandbox can be used: its ports listen.
func (g *Guest) Ready() error {
	if err := g.line.Send(wire.Message{Kind: wire.KindReady}); err != nil {
		return fmt.Errorf("runtime: tell the server: %w", err)
	}
	return nil
}

// receive handles the server's messages until the connection ends.
func (g *Guest) receive(ctx context.Context) error {
	for {
		m, files, err := g.line.Receive(2)
		if err != nil {
			return err
		}
		switch {
		case m.Kind == wire.KindDial && len(files) == 1:
			g.open(ctx, m.Port, files[0])
		case m.Kind == wire.KindEgressed || m.Kind == wire.KindKernel || m.Kind == wire.KindTerminal:
			g.settle(m, files)
		default:
			wire.CloseAll(files)
			return fmt.Errorf("%w: %q in the agent", wire.ErrProtocol, m.Kind)
		}
	}
}

// open connects a stream of the server to a port.
func (g *Guest) open(ctx context.Context, port uint16, file *os.File) {
	conn, err := wire.UnixConn(file)
	if err != nil {
		return // the server sees that its end is closed
	}
	g.mu.Lock()
	l := g.listeners[port]
	g.mu.Unlock()
	if l != nil {
		l.hand(conn)
		return
	}
	select {
	case g.streams <- struct{}{}:
	default:
		_ = conn.Close()
		return
	}
	go func() {
		defer func() { <-g.streams }()
		splice(ctx, port, conn)
	}()
}

// splice connects conn with what listens on the port in this network namespace.
func splice(ctx context.Context, port uint16, conn *net.UnixConn) {
	dialer := net.Dialer{Timeout: wire.DialTimeout}
	to, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		to, err = dialer.DialContext(ctx, "tcp", net.JoinHostPort("::1", strconv.Itoa(int(port))))
	}
	if err != nil {
		_, _ = conn.Write([]byte{wire.StatusClosed}) // nobody may be waiting for it now
		_ = conn.Close()
		return
	}
	if _, err := conn.Write([]byte{wire.StatusConnected}); err != nil {
		to.Close()
		_ = conn.Close()
		return
	}
	wire.Join(conn, to)
}

// settle ends the wait of an ask with its answer.
func (g *Guest) settle(m wire.Message, files []*os.File) {
	g.mu.Lock()
	waiting := g.pending[m.ID]
	delete(g.pending, m.ID)
	g.mu.Unlock()
	switch {
	case waiting == nil: // the caller of ask gave up
		wire.CloseAll(files)
	case len(files) > 0 && m.Error == "":
		waiting <- egressed{files: files}
	default:
		wire.CloseAll(files)
		waiting <- egressed{err: &EgressError{Reason: m.Error, Denied: m.Denied}}
	}
}

// DialEgress asks the server to connect to host, a name or an address, on the
// sandbox's behalf. If the server refuses, the error is an [*EgressError].
func (g *Guest) DialEgress(ctx context.Context, host string, port uint16) (net.Conn, error) {
	if host == "" || len(host) > 255 || port == 0 {
		return nil, &EgressError{Host: host[:min(len(host), 255)], Port: port, Reason: "not an address"}
	}
	files, err := g.ask(ctx, wire.Message{Kind: wire.KindEgress, Host: host, Port: port}, 1)
	if refused, ok := errors.AsType[*EgressError](err); ok {
		refused.Host, refused.Port = host, port
	}
	if err != nil {
		return nil, err
	}
	return wire.UnixConn(files[0])
}

// ask makes the server open something that arrives here as want files, and returns
// the files. If the server refuses, the error is an [*EgressError] without a
// target.
func (g *Guest) ask(ctx context.Context, m wire.Message, want int) ([]*os.File, error) {
	answer := make(chan egressed, 1)
	g.mu.Lock()
	if len(g.pending) >= wire.MaxDialling {
		g.mu.Unlock()
		return nil, &EgressError{Reason: fmt.Sprintf("%d connections are being made", wire.MaxDialling)}
	}
	g.next++
	m.ID = g.next
	g.pending[m.ID] = answer
	g.mu.Unlock()
	if err := g.line.Send(m); err != nil {
		g.forget(m.ID, answer)
		return nil, fmt.Errorf("runtime: ask the server: %w", err)
	}
	select {
	case <-ctx.Done():
		g.forget(m.ID, answer)
		return nil, context.Cause(ctx)
	case a := <-answer:
		if a.err == nil && len(a.files) != want {
			wire.CloseAll(a.files)
			return nil, fmt.Errorf("%w: %d files as the answer to %q", wire.ErrProtocol, len(a.files), m.Kind)
		}
		return a.files, a.err
	}
}

// forget ends a wait, and closes files that arrived in the meantime.
func (g *Guest) forget(id uint64, answer chan egressed) {
	g.mu.Lock()
	_, waiting := g.pending[id]
	delete(g.pending, id)
	g.mu.Unlock()
	if waiting {
		return
	}
	wire.CloseAll((<-answer).files)
}

// errNoKernels: there is no zygote, and kernels start cold.
var errNoKernels = errors.New("no process to fork kernels from")

// Kernel asks for a process that has everything loaded that kernels commonly load,
// and returns its socket. If the kernel could not be made the socket is closed at
// the other end.
func (g *Guest) Kernel(ctx context.Context) (*os.File, error) {
	if !g.inside {
		return nil, errNoKernels
	}
	files, err := g.ask(ctx, wire.Message{Kind: wire.KindKernel}, 1)
	if refused, ok := errors.AsType[*EgressError](err); ok {
		return nil, errors.New("runtime: fork a kernel: " + refused.Reason)
	}
	if err != nil {
		return nil, err
	}
	return files[0], nil
}

// Terminal opens a pseudo-terminal, which the caller must close. ctx bounds the
// wait for it. In a restricted sandbox the server opens it: programs can use it as
// their standard files and as /dev/tty, but cannot open it by its own name.
func (g *Guest) Terminal(ctx context.Context) (controller, tty *os.File, err error) {
	if !g.restricted {
		return pty.Open()
	}
	files, err := g.ask(ctx, wire.Message{Kind: wire.KindTerminal}, 2)
	if refused, ok := errors.AsType[*EgressError](err); ok {
		return nil, nil, errors.New("runtime: open a terminal: " + refused.Reason)
	}
	if err != nil {
		return nil, nil, err
	}
	return files[0], files[1], nil
}
