package tunnel

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// A link carries frames. A frame is a type byte, the length of the content in four bytes, and the
// content. Only data frames have content. With the other frames, the server makes both ends pause
// while no data is on the way between them. In this state a sandbox can be saved and continue
// elsewhere with another server.
const (
	frameData   byte = iota
	framePark        // server: the server writes nothing until frameGoOn
	frameParked      // guest: everything before framePark is read, and the guest waits for frameGoOn or frameServer
	frameGoOn        // server: both ends continue
	frameServer      // server: a new server has taken over, and the connections of the previous server are gone
)

const (
	frameHeader = 5
	maxFrame    = 64 << 10 // maximum number of bytes that Write sends in one frame
)

// errSuperseded ends the session of a guest when another server has replaced the guest's server.
var errSuperseded = errors.New("another server has taken over the sandbox")

// Link is the guest's end of the connection that carries tunnels, one after the other.
type Link struct{ wire *framed }

// NewLink returns the link over conn, which leads to the server.
func NewLink(conn io.ReadWriteCloser) *Link { return &Link{newFramed(conn)} }

// framed is one end of a link.
type framed struct {
	conn   io.ReadWriteCloser
	reader *bufio.Reader // used by one lane at a time
	turn   chan struct{} // held while writing, and while this end is paused
	out    []byte        // buffer for the frame that is written; guarded by turn
}

func newFramed(conn io.ReadWriteCloser) *framed {
	return &framed{conn: conn, reader: bufio.NewReaderSize(conn, maxFrame), turn: make(chan struct{}, 1)}
}

// lane returns a connection for a new session.
func (f *framed) lane() *lane {
	return &lane{framed: f, parked: make(chan struct{}, 1), ended: make(chan struct{})}
}

// write writes one frame. The caller holds turn.
func (f *framed) write(kind byte, data []byte) error {
	f.out = binary.BigEndian.AppendUint32(append(f.out[:0], kind), uint32(len(data)))
	f.out = append(f.out, data...)
	_, err := f.conn.Write(f.out)
	return err
}

// lane is a session's connection over a link. One goroutine may read, and any number of goroutines
// may write.
type lane struct {
	*framed
	guest bool
	left  uint32 // bytes left of the data frame that is being read
	still bool   // guest: this lane holds turn until the server sends frameGoOn or frameServer

	parked chan struct{} // receives a value when the guest has sent frameParked
	end    sync.Once
	ended  chan struct{} // closed when reading has ended
	reason error         // reason for the end; only read after ended
}

// Read reads the content of data frames, and handles other frames.
func (l *lane) Read(p []byte) (int, error) {
	for l.left == 0 {
		if err := l.next(); err != nil {
			l.stop(err)
			return 0, err
		}
	}
	n, err := l.reader.Read(p[:min(len(p), int(l.left))])
	l.left -= uint32(n)
	if err != nil {
		l.stop(err)
	}
	return n, err
}

// next reads the header of a frame.
func (l *lane) next() error {
	var header [frameHeader]byte
	if _, err := io.ReadFull(l.reader, header[:]); err != nil {
		return err
	}
	kind, length := header[0], binary.BigEndian.Uint32(header[1:])
	switch {
	case kind == frameData && !l.still:
		l.left = length
		return nil
	case length > 0:
	case l.guest && kind == framePark && !l.still:
		select {
		case l.turn <- struct{}{}:
		case <-l.ended: // Close
			return io.ErrClosedPipe
		}
		l.still = true
		return l.write(frameParked, nil)
	case l.guest && kind == frameGoOn && l.still:
		l.still = false
		<-l.turn
		return nil
	case l.guest && kind == frameServer:
		return errSuperseded
	case !l.guest && kind == frameParked:
		select {
		case l.parked <- struct{}{}:
			return nil
		default:
		}
	}
	return fmt.Errorf("%w: frame %d of %d bytes", ErrProtocol, kind, length)
}

// stop ends the lane for reading and writing.
func (l *lane) stop(err error) {
	l.end.Do(func() {
		l.reason = err
		close(l.ended)
	})
	if l.still { // only the reader changes it
		l.still = false
		<-l.turn
	}
}

// Write writes data. It waits while this end is paused.
func (l *lane) Write(p []byte) (written int, err error) {
	for len(p) > 0 {
		data := p[:min(len(p), maxFrame)]
		if err := l.send(frameData, data); err != nil {
			return written, err
		}
		written += len(data)
		p = p[len(data):]
	}
	return written, nil
}

func (l *lane) send(kind byte, data []byte) error {
	select {
	case l.turn <- struct{}{}:
	case <-l.ended:
		return l.reason
	}
	defer func() { <-l.turn }()
	select {
	case <-l.ended:
		return l.reason
	default:
		return l.write(kind, data)
	}
}

// Close closes the connection under the link. If another session has taken over the link, Close
// leaves the connection open.
func (l *lane) Close() error {
	l.end.Do(func() {
		l.reason = io.ErrClosedPipe
		close(l.ended)
	})
	if errors.Is(l.reason, errSuperseded) {
		return nil
	}
	return l.conn.Close()
}

// superseded reports whether the lane ended because another server took over.
func (l *lane) superseded() bool {
	select {
	case <-l.ended:
		return errors.Is(l.reason, errSuperseded)
	default:
		return false
	}
}

// park makes both ends pause until goOn is called. If park fails, both ends continue.
func (l *lane) park(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
	case <-l.ended:
		return l.reason
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	still := make(chan error, 1)
	go func() {
		err := l.write(framePark, nil)
		if err == nil {
			select {
			case <-l.parked:
			case <-l.ended:
				err = l.reason
			}
		}
		still <- err
	}()
	select {
	case err := <-still:
		if err != nil {
			<-l.turn
		}
		return err
	case <-ctx.Done():
		go func() { // the guest may park yet
			if <-still == nil {
				_ = l.write(frameGoOn, nil) // if it fails the session ends
			}
			<-l.turn
		}()
		return context.Cause(ctx)
	}
}

// goOn makes both ends continue after park.
func (l *lane) goOn() error {
	defer func() { <-l.turn }()
	return l.write(frameGoOn, nil)
}
