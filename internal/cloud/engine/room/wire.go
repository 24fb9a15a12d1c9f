//go:build linux

package room

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// wireVersion is the version of the messages. Both ends are the same binary unless
// Options.Agent names another one, so the versions must be equal.
const wireVersion = 4

// Sizes of one message, and of the descriptors that may come with it.
const (
	maxMessage      = 64 << 10
	maxAgentMessage = 16 << 10 // what the server reads from an agent
	maxFiles        = 64
	maxConfig       = 1 << 20
	maxErrorText    = 2 << 10
)

type kind string

const (
	kindHello    kind = "hello"    // child: started
	kindRole     kind = "role"     // server: take this role
	kindFailed   kind = "failed"   // child: it failed
	kindReady    kind = "ready"    // child: done, go on
	kindGo       kind = "go"       // server to the first stage: the limits are in force
	kindSpawn    kind = "spawn"    // server to room, with the agent's socket
	kindSpawned  kind = "spawned"  // room to server, with a pidfd
	kindEnding   kind = "ending"   // room to server, in place: the agent has ended, and what it left is being ended
	kindExited   kind = "exited"   // room to server; with an error if processes are left
	kindName     kind = "name"     // server to room: the hostname
	kindNamed    kind = "named"    // room to server
	kindKill     kind = "kill"     // server to room
	kindDial     kind = "dial"     // server to agent, with the stream
	kindEgress   kind = "egress"   // agent to server
	kindEgressed kind = "egressed" // server to agent, with the stream
	kindTerminal kind = "terminal" // agent to server; back, with both ends
	kindKernel   kind = "kernel"   // agent to server; back, with a socket; server to zygote, with that and more
)

type role string

const (
	roleKeeper role = "keeper"
	roleGuard  role = "guard"
	roleRoom   role = "room"
	roleInit   role = "init"
	roleAgent  role = "agent"
	roleProbe  role = "probe" // an agent that says ready and ends
	roleZygote role = "zygote"
)

// message is the one type of message on a control socket.
type message struct {
	Kind     kind            `json:"kind"`
	Protocol int             `json:"protocol,omitempty"`
	Role     role            `json:"role,omitempty"`
	Spec     json.RawMessage `json:"spec,omitempty"`
	ID       uint64          `json:"id,omitempty"`
	Slot     uint32          `json:"slot,omitempty"`
	UID      uint32          `json:"uid,omitempty"` // to switch to; 0 means none
	Host     string          `json:"host,omitempty"`
	Port     uint16          `json:"port,omitempty"`
	Status   int             `json:"status,omitempty"` // wait status
	Denied   bool            `json:"denied,omitempty"`
	Notes    []string        `json:"notes,omitempty"`
	Hidden   []string        `json:"hidden,omitempty"` // trees that the sandbox's id cannot enter
	Error    string          `json:"error,omitempty"`
}

// control is one end of a control socket, the control connection. Several
// goroutines may send, but only one may receive.
type control struct {
	conn *net.UnixConn
	buf  []byte
	mu   sync.Mutex // one send at a time, so that a deadline applies to one send
}

// newControl takes over f, a connected SOCK_SEQPACKET socket.
func newControl(f *os.File, limit int) (*control, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	conn, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errors.New("not a unix socket")
	}
	return &control{conn: conn, buf: make([]byte, limit)}, nil
}

// controlPair makes the server's end, and the file that becomes descriptor 3 of a
// child.
func controlPair(limit int) (*control, *os.File, error) {
	ours, theirs, err := socketpair(unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, nil, err
	}
	c, err := newControl(ours, limit)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return c, theirs, nil
}

func socketpair(typ int) (*os.File, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, typ|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(fds[0]), "socket"), os.NewFile(uintptr(fds[1]), "socket"), nil
}

// streamPair makes a connected stream: a connection for this process, and a file to
// hand to another process.
func streamPair() (*net.UnixConn, *os.File, error) {
	ours, theirs, err := socketpair(unix.SOCK_STREAM)
	if err != nil {
		return nil, nil, err
	}
	conn, err := streamConn(ours)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return conn, theirs, nil
}

// streamConn takes over f, a connected stream socket.
func streamConn(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	conn, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errors.New("not a unix socket")
	}
	return conn, nil
}

// sendTimeout bounds a send to a peer that does not read.
const sendTimeout = 5 * time.Second

// send sends m together with files. The caller must still close its own files.
func (c *control) send(m message, files ...*os.File) error {
	return c.sendWithin(sendTimeout, m, files...)
}

func (c *control) sendWithin(d time.Duration, m message, files ...*os.File) error {
	if len(m.Error) > maxErrorText {
		m.Error = m.Error[:maxErrorText]
	}
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(data) > maxMessage {
		return fmt.Errorf("message of %d bytes is over %d", len(data), maxMessage)
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.conn.SetWriteDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	_, _, err = c.conn.WriteMsgUnix(data, rights, nil)
	runtime.KeepAlive(files) // the descriptor numbers are valid only while the files are
	return err
}

// receive reads one message. If files is 0 no descriptor can arrive: the kernel
// closes those that the peer attached.
func (c *control) receive(files int) (message, []*os.File, error) {
	var oob []byte
	if files > 0 {
		oob = make([]byte, unix.CmsgSpace(4*files))
	}
	n, oobn, flags, _, err := c.conn.ReadMsgUnix(c.buf, oob)
	if err != nil {
		return message{}, nil, err
	}
	got, err := parseRights(oob[:oobn])
	if err == nil && flags&unix.MSG_TRUNC != 0 {
		err = fmt.Errorf("message is over %d bytes", len(c.buf))
	}
	if err == nil && files > 0 && flags&unix.MSG_CTRUNC != 0 {
		err = errors.New("descriptors were lost: too many open files")
	}
	var m message
	if err == nil {
		err = json.Unmarshal(c.buf[:n], &m)
	}
	if err != nil {
		closeAll(got)
		return message{}, nil, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return m, got, nil
}

// expect receives until a message of kind want arrives; a failed message becomes
// its error.
func (c *control) expect(want kind, files int) (message, []*os.File, error) {
	m, got, err := c.receive(files)
	switch {
	case err != nil:
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			err = errPeerEnded
		}
	case m.Kind == kindFailed:
		err = errors.New(m.Error)
	case m.Kind != want:
		err = fmt.Errorf("%w: %q came instead of %q", ErrProtocol, m.Kind, want)
	case want == kindHello && m.Protocol != wireVersion:
		err = fmt.Errorf("the agent speaks version %d of the protocol, not %d: name the right binary with local.WithBinary(path)", m.Protocol, wireVersion)
	}
	if err != nil {
		closeAll(got)
		return message{}, nil, err
	}
	return m, got, nil
}

// errPeerEnded: the process at the other end is gone.
var errPeerEnded = errors.New("the process ended")

func parseRights(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue // another kind of control message
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

// close closes the connection; nothing can be done about an error.
func (c *control) close() { _ = c.conn.Close() }

// closeFD closes a descriptor that nothing was written to.
func closeFD(fd int) { _ = unix.Close(fd) }

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

func encode(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // the value is one of our own structs of strings and numbers
	}
	return data
}
