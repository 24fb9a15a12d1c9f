//go:build linux

package wire

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

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/hello"
)

// Conn is one end of a control socket, also called the control connection. Several goroutines may
// send, but only one may receive.
type Conn struct {
	conn *net.UnixConn
	buf  []byte
	mu   sync.Mutex // locked by one send at a time, so that a deadline applies to one send
}

// NewConn takes over f, a connected SOCK_SEQPACKET socket.
func NewConn(f *os.File, limit int) (*Conn, error) {
	conn, err := UnixConn(f)
	if err != nil {
		return nil, err
	}
	return &Conn{conn: conn, buf: make([]byte, limit)}, nil
}

// Pair makes a connected pair of control sockets. It returns the server's end, and the file that
// becomes descriptor 3 of a child.
func Pair(limit int) (*Conn, *os.File, error) {
	ours, theirs, err := SocketPair(unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, nil, err
	}
	c, err := NewConn(ours, limit)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return c, theirs, nil
}

// sendTimeout bounds a send to a peer that does not read.
const sendTimeout = 5 * time.Second

// Send sends m.
func (c *Conn) Send(m Message) error { return c.SendFiles(m, nil) }

// SendFiles sends m together with files. It does not close the files.
func (c *Conn) SendFiles(m Message, files *Files) error {
	return c.SendWithin(sendTimeout, m, files)
}

// SendWithin is like SendFiles, with another bound on the time.
func (c *Conn) SendWithin(d time.Duration, m Message, files *Files) error {
	if len(m.Error) > MaxErrorText {
		m.Error = m.Error[:MaxErrorText]
	}
	var rights []byte
	if files.Len() > 0 {
		m.Files = files.names
		fds := make([]int, files.Len())
		for i, f := range files.files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(data) > MaxMessage {
		return fmt.Errorf("message of %d bytes is over %d", len(data), MaxMessage)
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

// Receive reads one message with at most limit files. The caller takes or closes the files. If
// limit is 0, no descriptor can arrive, because the kernel closes all descriptors that the peer
// attached.
func (c *Conn) Receive(limit int) (Message, *Files, error) {
	var oob []byte
	if limit > 0 {
		oob = make([]byte, unix.CmsgSpace(4*limit))
	}
	n, oobn, flags, _, err := c.conn.ReadMsgUnix(c.buf, oob)
	if err != nil {
		return Message{}, nil, err
	}
	got, err := parseRights(oob[:oobn])
	if err == nil && flags&unix.MSG_TRUNC != 0 {
		err = fmt.Errorf("message is over %d bytes", len(c.buf))
	}
	if err == nil && limit > 0 && flags&unix.MSG_CTRUNC != 0 {
		err = errors.New("descriptors were lost: too many open files")
	}
	var m Message
	if err == nil {
		err = json.Unmarshal(c.buf[:n], &m)
	}
	if err == nil && len(m.Files) != len(got) {
		err = fmt.Errorf("%d descriptors came with the names of %d", len(got), len(m.Files))
	}
	if err != nil {
		CloseAll(got)
		return Message{}, nil, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return m, &Files{names: m.Files, files: got}, nil
}

// Expect receives a message, which must be of kind want. If a message of kind [KindFailed] arrives
// instead, Expect returns its error.
func (c *Conn) Expect(want Kind, limit int) (Message, *Files, error) {
	m, got, err := c.Receive(limit)
	switch {
	case err != nil:
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			err = ErrPeerEnded
		}
	case m.Kind == KindFailed:
		err = errors.New(m.Error)
	case m.Kind != want:
		err = fmt.Errorf("%w: %q came instead of %q", ErrProtocol, m.Kind, want)
	case want == KindHello && m.Protocol != hello.Version:
		err = fmt.Errorf("envd speaks version %d of the protocol, not %d: name the right binary with local.WithBinary(path)", m.Protocol, hello.Version)
	}
	if err != nil {
		got.Close()
		return Message{}, nil, err
	}
	return m, got, nil
}

// ErrPeerEnded means that the process at the other end has ended.
var ErrPeerEnded = errors.New("the process ended")

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

// End informs the other end that no more messages will be sent. It fails only if the process at the
// other end has ended.
func (c *Conn) End() { _ = c.conn.CloseWrite() }

// Close closes the connection. It ignores an error, because nothing can be done about it.
func (c *Conn) Close() { _ = c.conn.Close() }

// CloseFD closes a descriptor to which nothing was written, so that an error does not matter.
func CloseFD(fd int) { _ = unix.Close(fd) }

// CloseAll closes files to which nothing was written, so that errors do not matter.
func CloseAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
