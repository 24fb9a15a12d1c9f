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
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/link"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// Guest is the in-sandbox API: the sandbox as its envd sees it. It is safe for
// concurrent use.
type Guest struct {
	// Config is SandboxOptions.Config.
	Config json.RawMessage
	// Users are the accounts root and user, in this order. If the server has only one id for
	// sandboxes, both accounts have that id.
	Users []guest.User
	// AnyUser means that processes may have every other id, too, as in a container that runs as
	// root.
	AnyUser bool
	// Root is the sandbox's root directory: / if it has a file system of its own.
	Root string
	// Temp is the directory for temporary files.
	Temp string
	// Run is the directory for envd's own files; it need not exist.
	Run string
	// Egress reports whether DialEgress can succeed. Without namespaces, Egress is false, because
	// no program inside could reach envd's proxy.
	Egress bool

	// Log sends lines of slog's JSON handler to the server.
	Log *Log

	control *wire.Conn
	// oomKills and memoryUse are files of the control group. They contain the numbers that OOMKills
	// and MemoryUse return. They are nil if there is no control group.
	oomKills, memoryUse *os.File
	// kills is used if the control group is not visible inside. It requests the number of killed
	// processes from the server. If kills is nil, the server does not count killed processes.
	kills       func() int
	ownLoopback bool // the loopback is the sandbox's own
	restricted  bool // the sandbox runs in place, without access to /dev/pts
	slots       slots
	// dial connects to a port on which envd itself does not listen.
	dial   func(ctx context.Context, port uint16) (net.Conn, error)
	memory *checkpointer // saves the sandbox's memory; nil if memory cannot be saved

	mu        sync.Mutex
	become    func(config json.RawMessage) error
	listeners map[uint16]*guestListener
	pending   map[uint64]chan answer
	next      uint64
}

// runDirectory is [Guest.Run] if the sandbox has a file system of its own.
const runDirectory = "/run/e2b"

// runEnvd is the second stage of a sandbox. The restrictions of the sandbox are already in force,
// except the restrictions that the method hold of its runner applies.
func runEnvd(ctx context.Context, c *wire.Conn, raw json.RawMessage, files *wire.Files, serve func(context.Context, *Guest) error) error {
	run, spec, err := holdEnvd(raw)
	if err != nil {
		return err
	}
	if err := endureSignals(); err != nil {
		return err
	}
	config, err := takeConfig(files)
	if err != nil {
		return err
	}
	g := newGuest(c, 1)
	g.oomKills = files.TakeIf(wire.FileOOMKills)
	g.Config = config
	return run.envd(ctx, g, spec, files, serve)
}

// holdEnvd applies the restrictions that the second stage applies to itself, and returns the runner
// that serves envd.
func holdEnvd(raw json.RawMessage) (runner, *wire.EnvdSpec, error) {
	if err := restrictEnvd(); err != nil {
		return nil, nil, err
	}
	var spec wire.EnvdSpec
	if err := wire.DecodeSpec(raw, &spec); err != nil {
		return nil, nil, err
	}
	run := chooseRunner(spec.Runner)
	return run, &spec, run.hold(&spec)
}

// run takes the remaining files, and serves envd to the server.
func (g *Guest) run(ctx context.Context, files *wire.Files, serve func(context.Context, *Guest) error) error {
	g.memoryUse = files.TakeIf(wire.FileMemoryUse)
	if err := files.End(); err != nil {
		return err
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

// takeConfig returns the text of the configuration.
func takeConfig(files *wire.Files) (json.RawMessage, error) {
	file, err := files.Take(wire.FileConfig)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	config, err := io.ReadAll(io.NewSectionReader(file, 0, guest.MaxConfig))
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return config, nil
}

// newGuest returns a guest. ends is the number of descriptors of this process that each connection
// from the server uses.
func newGuest(c *wire.Conn, ends uint64) *Guest {
	return &Guest{
		Log:       newLog(),
		control:   c,
		slots:     newSlots(openFiles(), ends),
		dial:      dialLoopback,
		listeners: make(map[uint16]*guestListener),
		pending:   make(map[uint64]chan answer),
	}
}

// users returns the accounts of a sandbox with a file system of its own. ranged means that root and
// user have different ids.
func users(ranged bool) []guest.User {
	root := guest.User{Name: "root", Home: guest.RootHome, Shell: guest.LoginShell}
	user := guest.User{Name: "user", Home: guest.UserHome, Shell: guest.LoginShell}
	if ranged {
		const sudo = 27
		user.UID, user.GID = protocol.UserID, protocol.UserID
		user.Credential = &syscall.Credential{Uid: protocol.UserID, Gid: protocol.UserID, Groups: []uint32{sudo}}
	}
	return []guest.User{root, user}
}

// OOMKills returns the number of processes that have been killed so far because the sandbox reached
// its memory limit. It returns 0 if no control group counts killed processes.
func (g *Guest) OOMKills() int {
	switch {
	case g.kills != nil:
		return g.kills()
	case g.oomKills == nil:
		return 0
	}
	return cgroup.CountOOMKills(g.oomKills)
}

// MemoryUse returns two numbers of bytes. used is the memory in use, including files that the sandbox
// keeps in memory. cache is the page cache, which is not part of used. known is false if no control
// group counts memory.
func (g *Guest) MemoryUse() (used, cache uint64, known bool) {
	if g.memoryUse == nil {
		return 0, 0, false
	}
	m, known := cgroup.ReadMemory(g.memoryUse)
	return m.Used(), m.Cache, known
}

// OnBecome registers f. When a saved sandbox continues with another configuration, f is called before
// anybody can connect to the sandbox. Call OnBecome before Ready.
func (g *Guest) OnBecome(f func(config json.RawMessage) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.become = f
}

func (g *Guest) becomes(config json.RawMessage) error {
	g.mu.Lock()
	become := g.become
	g.mu.Unlock()
	return become(config)
}

// Ready reports to the server that envd listens on its ports, and that the sandbox can be used.
func (g *Guest) Ready() error {
	if err := g.control.Send(wire.Message{Kind: wire.KindReady}); err != nil {
		return fmt.Errorf("room: tell the server: %w", err)
	}
	go g.Log.send(func(line json.RawMessage) error { // only now: before, the server expects nothing else
		return g.control.Send(wire.Message{Kind: wire.KindLog, Spec: line})
	})
	return nil
}

// receive handles the server's messages until the connection ends.
func (g *Guest) receive(ctx context.Context) error {
	giveUp, asked := func() {}, uint64(0) // state of the checkpointer's task
	defer func() { giveUp() }()
	for {
		m, files, err := g.control.Receive(2)
		if err != nil {
			return err
		}
		switch {
		case m.Kind == wire.KindDial:
			if err := g.open(ctx, m.Port, files); err != nil {
				return err
			}
		case m.Kind == wire.KindEgressed || m.Kind == wire.KindKernel || m.Kind == wire.KindTerminal || m.Kind == wire.KindRefused:
			g.settle(m, files)
		case g.memory != nil && (m.Kind == wire.KindStop || m.Kind == wire.KindGoOn || m.Kind == wire.KindSaveMemory):
			giveUp() // the last task has ended
			giveUp, asked = g.holdProcesses(ctx, m.Kind, files), m.ID
		case m.Kind == wire.KindGiveUp:
			if m.ID == asked {
				giveUp()
			}
		default:
			files.Close()
			return fmt.Errorf("%w: %q in envd", wire.ErrProtocol, m.Kind)
		}
	}
}

// holdProcesses stops, saves or resumes the processes, according to kind. It reports to the server
// when that is done.
func (g *Guest) holdProcesses(ctx context.Context, kind wire.Kind, files *wire.Files) (giveUp func()) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer files.Close()
		var err error
		switch kind {
		case wire.KindStop:
			err = g.memory.stop(ctx)
		case wire.KindSaveMemory:
			var to *os.File
			if to, err = files.Take(wire.FileMemory); err == nil {
				err = errors.Join(g.memory.save(ctx, to), to.Close())
			}
		default:
			err = g.memory.goOn(ctx)
		}
		m := wire.Message{Kind: kind}
		if err != nil {
			m.Error = err.Error()
		}
		_ = g.control.Send(m) // the server may be gone
	}()
	return cancel
}

// open connects a stream of the server to a port. An error means that the server broke the
// protocol.
func (g *Guest) open(ctx context.Context, port uint16, files *wire.Files) error {
	defer files.Close()
	file, err := files.Take(wire.FileStream)
	if err != nil {
		return err
	}
	conn, err := wire.UnixConn(file)
	if err != nil {
		return nil // the server sees that its end is closed
	}
	if l := g.listener(port); l != nil {
		l.hand(conn)
		return nil
	}
	go g.carry(ctx, port, conn)
	return nil
}

// listener returns the listener for the port in this process, or nil.
func (g *Guest) listener(port uint16) *guestListener {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.listeners[port]
}

// carry connects a stream of the server with the listener on the port.
func (g *Guest) carry(ctx context.Context, port uint16, conn net.Conn) {
	release, err := g.slots.Take(int(port))
	if err != nil {
		refuse(conn, link.StatusOf(err))
		return
	}
	defer release()
	to, err := g.dial(ctx, port)
	if err != nil {
		refuse(conn, link.StatusOf(err))
		return
	}
	if _, err := conn.Write([]byte{link.StatusConnected}); err != nil {
		to.Close()
		_ = conn.Close()
		return
	}
	link.Join(conn, to)
}

func dialLoopback(ctx context.Context, port uint16) (net.Conn, error) {
	return link.DialLoopback(ctx, port)
}
