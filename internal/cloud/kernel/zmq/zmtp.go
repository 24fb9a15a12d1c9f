//go:build linux

package zmq

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/e2bctl/e2bctl/internal/cloud/kernel/link"
)

// zmtp is the client's end of a ZeroMQ connection. It implements version 3.0 of ZeroMQ's transport
// protocol (RFC 23), without security. Jupyter kernels use this protocol. Only one goroutine may
// read.
//
// Messages of a peer are untrusted. Memory is only allocated for bytes that have arrived, and a
// message has at most link.MaxMessage bytes.
type zmtp struct {
	net.Conn
	r       *bufio.Reader
	writing sync.Mutex
}

const (
	zmtpMore    = 1
	zmtpLong    = 2
	zmtpCommand = 4
	// maxParts bounds the number of parts of a message. A kernel's message has far fewer parts.
	maxParts = 1024
)

var (
	errZMTP = errors.New("zmq: not ZeroMQ")
	// greeting consists of signature, version, mechanism, as-server and filler.
	greeting = append(append([]byte{0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0}, "NULL"...), make([]byte, 64-16)...)
)

// openZMTP performs the handshake on conn, as a socket of the given type. A peer that routes
// messages uses identity as the address of this socket.
func openZMTP(conn net.Conn, socketType, identity string) (*zmtp, error) {
	z := &zmtp{Conn: conn, r: bufio.NewReaderSize(conn, 64<<10)}
	ready := []byte("\x05READY")
	for _, property := range [][2]string{{"Socket-Type", socketType}, {"Identity", identity}} {
		ready = append(append(ready, byte(len(property[0]))), property[0]...)
		ready = append(binary.BigEndian.AppendUint32(ready, uint32(len(property[1]))), property[1]...)
	}
	hello := append(append(bytes.Clone(greeting), zmtpCommand, byte(len(ready))), ready...)
	if _, err := conn.Write(hello); err != nil {
		return nil, err
	}
	theirs := make([]byte, len(greeting))
	if _, err := io.ReadFull(z.r, theirs); err != nil {
		return nil, fmt.Errorf("%w: greeting: %w", errZMTP, err)
	}
	if theirs[0] != 0xff || theirs[9] != 0x7f || theirs[10] < 3 || !bytes.Equal(theirs[12:32], greeting[12:32]) {
		return nil, fmt.Errorf("%w: greeting %.32q", errZMTP, theirs)
	}
	flags, command, err := z.readFrame(link.MaxMessage)
	if err != nil {
		return nil, err
	}
	if flags&zmtpCommand == 0 || !bytes.HasPrefix(command, []byte("\x05READY")) {
		return nil, fmt.Errorf("%w: %.40q instead of READY", errZMTP, command)
	}
	return z, nil
}

// writeMessage writes all parts of a message in one call.
func (z *zmtp) writeMessage(parts ...[]byte) error {
	buffers := make(net.Buffers, 0, 2*len(parts))
	for i, part := range parts {
		var head []byte
		if len(part) < 256 {
			head = []byte{0, byte(len(part))}
		} else {
			head = binary.BigEndian.AppendUint64([]byte{zmtpLong}, uint64(len(part)))
		}
		if i < len(parts)-1 {
			head[0] |= zmtpMore
		}
		buffers = append(buffers, head, part)
	}
	z.writing.Lock()
	defer z.writing.Unlock()
	_, err := buffers.WriteTo(z.Conn)
	return err
}

// readMessage returns the parts of the next message.
func (z *zmtp) readMessage() (parts [][]byte, err error) {
	room := link.MaxMessage
	for {
		flags, part, err := z.readFrame(room)
		switch {
		case err != nil:
			return nil, err
		case flags&zmtpCommand != 0:
			continue // a command of a newer version, which is not supported here
		case len(parts) == maxParts:
			return nil, fmt.Errorf("%w: a message of more than %d parts", errZMTP, maxParts)
		}
		parts, room = append(parts, part), room-len(part)
		if flags&zmtpMore == 0 {
			return parts, nil
		}
	}
}

func (z *zmtp) readFrame(limit int) (flags byte, body []byte, err error) {
	if flags, err = z.r.ReadByte(); err != nil {
		return 0, nil, err
	}
	head := make([]byte, 1, 8)
	if flags&zmtpLong != 0 {
		head = head[:8]
	}
	if _, err := io.ReadFull(z.r, head); err != nil {
		return 0, nil, err
	}
	size := uint64(head[0])
	if flags&zmtpLong != 0 {
		size = binary.BigEndian.Uint64(head)
	}
	if size > uint64(limit) {
		return 0, nil, fmt.Errorf("%w: a frame of %d bytes where %d are left", errZMTP, size, limit)
	}
	if size <= uint64(z.r.Size()) {
		body = make([]byte, size)
		_, err = io.ReadFull(z.r, body)
		return flags, body, err
	}
	var buf bytes.Buffer
	if _, err := io.CopyN(&buf, z.r, int64(size)); err != nil {
		return 0, nil, err
	}
	return flags, buf.Bytes(), nil
}
