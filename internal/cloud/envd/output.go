//go:build linux

package envd

import (
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/gen/process"
)

const (
	maxChunk = 32 << 10 // maximum number of bytes of stdout or stderr in one event
	maxPTY   = 16 << 10 // maximum number of bytes of a terminal in one event

	// queuedChunks bounds the number of chunks that wait for a subscriber.
	queuedChunks   = 16
	maxSubscribers = 64

	// stallLimit bounds the time that a subscriber that does not read may block a process that has
	// other subscribers.
	stallLimit = 5 * time.Second
)

var (
	errFellBehind         = errors.New("the stream does not read its output, and others wait for it: connect again")
	errTooManySubscribers = errors.New("too many streams of one process: the bound is 64")
)

// stream is one of the outputs of a process.
type stream int

const (
	stdout stream = iota
	stderr
	terminal
)

// limit returns the maximum number of bytes of this output in one event.
func (s stream) limit() int {
	if s == terminal {
		return maxPTY
	}
	return maxChunk
}

// chunk is a piece of output. Its subscribers share it. It is reused after all of them have
// released it.
type chunk struct {
	of   stream
	data []byte
	refs atomic.Int32
	buf  [maxChunk]byte
}

var chunks = sync.Pool{New: func() any { return new(chunk) }}

func newChunk(of stream) *chunk {
	c := chunks.Get().(*chunk)
	c.of = of
	c.refs.Store(1)
	return c
}

func (c *chunk) release() {
	if c.refs.Add(-1) == 0 {
		chunks.Put(c)
	}
}

// event returns an event that shares the memory of the chunk. The event must be sent before
// release is called.
func (c *chunk) event() *process.ProcessEvent {
	data := new(process.ProcessEvent_DataEvent)
	switch c.of {
	case stdout:
		data.Output = &process.ProcessEvent_DataEvent_Stdout{Stdout: c.data}
	case stderr:
		data.Output = &process.ProcessEvent_DataEvent_Stderr{Stderr: c.data}
	case terminal:
		data.Output = &process.ProcessEvent_DataEvent_Pty{Pty: c.data}
	}
	return &process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: data}}
}

// output passes the output of a process to its subscribers. Bounded queues limit the memory.
// When a queue is full, the process waits:
//
//   - for the oldest subscriber (the Start stream while it exists) without a limit,
//     because a client that reads slowly must receive everything;
//   - for every other subscriber for stallLimit, after which that subscriber is cut off
//     with an error.
//
// Once the process has been signalled, every subscriber has the limit stallLimit. Without
// subscribers, output is read and dropped.
type output struct {
	publishing sync.Mutex // protects the order of chunks, and ensures that no chunk follows the end

	mu          sync.Mutex
	subscribers []*subscriber // oldest first; replaced, never changed in place
	ended       bool

	impatient chan struct{} // closed once the process was signalled
	abandoned chan struct{} // closed once no subscriber will read again
}

type subscriber struct {
	chunks chan *chunk // closed after the last chunk
	gone   chan struct{}
	cut    bool // set before chunks is closed, if more output followed

	held *chunk // kept by gather for its next call; belongs to the reader
}

// newOutput returns an output with its first subscriber.
func newOutput() (*output, *subscriber) {
	first := newSubscriber()
	return &output{
		subscribers: []*subscriber{first},
		impatient:   make(chan struct{}),
		abandoned:   make(chan struct{}),
	}, first
}

func newSubscriber() *subscriber {
	return &subscriber{chunks: make(chan *chunk, queuedChunks), gone: make(chan struct{})}
}

// subscribe adds a subscriber. It returns nil if the output has ended.
func (o *output) subscribe() (*subscriber, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return nil, nil
	}
	if len(o.subscribers) >= maxSubscribers {
		return nil, errTooManySubscribers
	}
	s := newSubscriber()
	o.subscribers = append(slices.Clip(o.subscribers), s)
	return s, nil
}

// unsubscribe removes a subscriber. The reader of each subscriber must call it once.
func (o *output) unsubscribe(s *subscriber) {
	close(s.gone)
	o.remove(s)
}

// gather joins c and the chunks that are already queued, up to the limit of one event. The caller
// has just received c. So a reader that is fast enough receives every write at once, and a slower
// reader receives many small writes in one event.
func (s *subscriber) gather(c *chunk) *chunk {
	joined := false
	for {
		select {
		case next, more := <-s.chunks:
			if !more {
				return c // the next receive reports the end again
			}
			if next.of != c.of || len(c.data)+len(next.data) > c.of.limit() {
				s.held = next
				return c
			}
			if !joined {
				// Other subscribers may share this chunk, so it is copied.
				own := newChunk(c.of)
				own.data = append(own.buf[:0], c.data...)
				c.release()
				c, joined = own, true
			}
			c.data = append(c.data, next.data...)
			next.release()
		default:
			return c
		}
	}
}

func (o *output) remove(s *subscriber) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.subscribers = slices.DeleteFunc(slices.Clone(o.subscribers), func(other *subscriber) bool { return other == s })
}

func (o *output) current() []*subscriber {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.subscribers
}

func (o *output) publish(c *chunk) {
	o.publishing.Lock()
	defer o.publishing.Unlock()
	subscribers := o.current()
	// The oldest subscriber comes last, because there may be no limit for it.
	for i, s := range slices.Backward(subscribers) {
		c.refs.Add(1)
		if !o.deliver(s, c, i == 0) {
			c.release()
		}
	}
	c.release()
}

func (o *output) deliver(s *subscriber, c *chunk, oldest bool) bool {
	select {
	case s.chunks <- c:
		return true
	default:
	}
	if oldest {
		select {
		case s.chunks <- c:
			return true
		case <-s.gone:
			return false
		case <-o.abandoned:
			return false
		case <-o.impatient:
		}
	}
	stalled := time.NewTimer(stallLimit)
	defer stalled.Stop()
	select {
	case s.chunks <- c:
		return true
	case <-s.gone:
	case <-o.abandoned:
	case <-stalled.C:
		o.remove(s)
		s.cut = true
		close(s.chunks)
	}
	return false
}

// isAbandoned reports whether no subscriber will read again.
func (o *output) isAbandoned() bool {
	select {
	case <-o.abandoned:
		return true
	default:
		return false
	}
}

// end closes the channel of every subscriber.
func (o *output) end() {
	o.publishing.Lock()
	defer o.publishing.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	for _, s := range o.subscribers {
		close(s.chunks)
	}
	o.subscribers = nil
}

// copyFrom publishes the output from f until its end. For a terminal, the end is the error EIO. A
// deadline of f also ends copyFrom, after copyFrom has published everything in the pipe. In this
// case copyFrom returns true, because another process still holds the other end of the pipe open.
func (o *output) copyFrom(f *os.File, of stream) (held bool) {
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	for {
		c, err := readChunk(conn, of, true)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return false
		}
		o.publish(c)
	}
	if err := f.SetReadDeadline(time.Time{}); err != nil {
		return false
	}
	// After the deadline, a background process wrote more than a pipe can hold.
	const maxPipe = 1 << 20
	for left := maxPipe; left > 0; {
		c, err := readChunk(conn, of, false)
		if err != nil {
			return errors.Is(err, unix.EAGAIN) || errors.Is(err, os.ErrDeadlineExceeded)
		}
		left -= len(c.data)
		o.publish(c)
	}
	return true
}

// readChunk reads output into a chunk. It allocates no buffer while it waits, so that a process
// without output needs no memory. If wait is false and there is nothing to read, it returns
// [unix.EAGAIN].
func readChunk(conn syscall.RawConn, of stream, wait bool) (*chunk, error) {
	var c *chunk
	var failed error
	err := conn.Read(func(fd uintptr) bool {
		c = newChunk(of)
		n, err := unix.Read(int(fd), c.buf[:of.limit()])
		for errors.Is(err, unix.EINTR) {
			n, err = unix.Read(int(fd), c.buf[:of.limit()])
		}
		if n > 0 {
			c.data = c.buf[:n]
			return true
		}
		c.release()
		c = nil
		if errors.Is(err, unix.EAGAIN) && wait {
			return false
		}
		if failed = err; err == nil {
			failed = io.EOF
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	return c, failed
}
