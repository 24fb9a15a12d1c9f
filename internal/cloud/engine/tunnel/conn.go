package tunnel

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"
)

// maxChunk is the maximum size of a chunk in bytes.
const maxChunk = 32 << 10

// Conn is one connection through the tunnel. A yamux stream can only be closed for writing, and the
// other end does not learn that this end has stopped reading. So Conn sends data in chunks with
// their length. An empty chunk ends the data, and the end of the stream closes the connection.
type Conn struct {
	stream *yamux.Stream
	closed atomic.Bool
	close  func()

	reading sync.Mutex
	header  [4]byte
	got     int    // bytes of header that have arrived
	left    uint32 // bytes of the chunk that are still to come
	ended   bool   // the data has ended

	writing sync.Mutex
	out     []byte
	unable  error // the reason why no more data can be written
}

func newConn(stream *yamux.Stream) *Conn {
	c := &Conn{stream: stream}
	c.close = sync.OnceFunc(func() {
		c.closed.Store(true)
		_ = stream.SetReadDeadline(time.Unix(1, 0)) // wakes the reader
		go func() { _ = stream.Close() }()          // in the background: it waits for a frozen sandbox
	})
	return c
}

// Read reads the data that the other end has written. After Close, Read returns [net.ErrClosed]
// even if data or its end has arrived since. Otherwise data that was cut off would look complete.
func (c *Conn) Read(p []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	for c.left == 0 && !c.ended {
		n, err := c.stream.Read(c.header[c.got:])
		if c.closed.Load() { // the stream still returns buffered data
			return 0, net.ErrClosed
		}
		if c.got += n; c.got == len(c.header) {
			c.got, c.left = 0, binary.BigEndian.Uint32(c.header[:])
			if c.left == 0 {
				c.ended = true
				go c.watch()
			}
			if c.left > maxChunk {
				c.close()
				return 0, ErrProtocol
			}
		} else if err != nil {
			return 0, c.readError(err)
		}
	}
	if c.ended {
		return 0, io.EOF
	}
	n, err := c.stream.Read(p[:min(len(p), int(c.left))])
	if c.closed.Load() {
		return 0, net.ErrClosed
	}
	c.left -= uint32(n)
	if err != nil {
		return n, c.readError(err)
	}
	return n, nil
}

// watch waits for the end of the stream, after the other end has ended its data.
func (c *Conn) watch() {
	_, _ = c.stream.Read(make([]byte, 1)) // nothing comes
	c.close()
}

func (c *Conn) readError(err error) error {
	if errors.Is(err, yamux.ErrTimeout) {
		return os.ErrDeadlineExceeded
	}
	c.close() // the other end no longer reads either
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	return err
}

// Write writes p. After an error, no more data can be written. This also applies to a missed
// deadline.
func (c *Conn) Write(p []byte) (written int, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	for len(p) > 0 && c.unable == nil {
		chunk := p[:min(len(p), maxChunk)]
		c.out = append(binary.BigEndian.AppendUint32(c.out[:0], uint32(len(chunk))), chunk...)
		if c.unable = c.send(c.out); c.unable == nil {
			written += len(chunk)
			p = p[len(chunk):]
		}
	}
	return written, c.unable
}

// CloseWrite ends this end's data.
func (c *Conn) CloseWrite() error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.unable != nil {
		return c.unable
	}
	if err := c.send(make([]byte, 4)); err != nil {
		c.unable = err
		return err
	}
	c.unable = net.ErrClosed
	return nil
}

func (c *Conn) send(data []byte) error {
	_, err := c.stream.Write(data)
	switch {
	case err == nil:
		return nil
	case c.closed.Load():
		return net.ErrClosed
	case errors.Is(err, yamux.ErrTimeout):
		return os.ErrDeadlineExceeded
	}
	return err
}

// Close closes the connection in both directions.
func (c *Conn) Close() error {
	c.close()
	return nil
}

// LocalAddr returns a meaningless address.
func (c *Conn) LocalAddr() net.Addr { return address{} }

// RemoteAddr returns a meaningless address.
func (c *Conn) RemoteAddr() net.Addr { return address{} }

// SetDeadline sets the deadline of reads and writes.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline sets the deadline of reads.
func (c *Conn) SetReadDeadline(t time.Time) error {
	if err := c.stream.SetReadDeadline(t); err != nil {
		return err
	}
	if c.closed.Load() { // may have been closed since
		_ = c.stream.SetReadDeadline(time.Unix(1, 0))
		return net.ErrClosed
	}
	return nil
}

// SetWriteDeadline sets the deadline of writes.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.stream.SetWriteDeadline(t) }

type address struct{}

func (address) Network() string { return "tunnel" }
func (address) String() string  { return "tunnel" }
