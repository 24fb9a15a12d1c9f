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
	maxChunk = 64 << 10 // maximum number of bytes of stdout or stderr in one event, as many as a pipe has
	maxPTY   = 16 << 10 // maximum number of bytes of a terminal in one event

	// queuedChunks bounds the number of chunks that wait for a subscriber.
	queuedChunks   = 8
	maxSubscribers = 64

	// stallLimit bounds the time that a subscriber that does not read may block a process that has
	// other subscribers.
	stallLimit = 5 * time.Second
)

var (
	errFellBehind         = errors.New("the stream does not read its output, and others wait for it: connect again")
	errReplaced           = errors.New("the client has connected again")
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

// outputEvent returns an event that shares the memory of p. The event must be sent before the memory
// is released.
func outputEvent(of stream, p []byte) *process.ProcessEvent {
	data := new(process.ProcessEvent_DataEvent)
	switch of {
	case stdout:
		data.Output = &process.ProcessEvent_DataEvent_Stdout{Stdout: p}
	case stderr:
		data.Output = &process.ProcessEvent_DataEvent_Stderr{Stderr: p}
	case terminal:
		data.Output = &process.ProcessEvent_DataEvent_Pty{Pty: p}
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
// subscribers, output is read, and its newest part is kept.
type output struct {
	publishing sync.Mutex // protects the order of chunks, and ensures that no chunk follows the end

	mu          sync.Mutex
	subscribers []*subscriber // oldest first; replaced, never changed in place
	ended       bool
	kept        kept
	away        *absence // absence of a client that may connect again; nil: no such client is absent
	streams     uint64   // the latest number in the field stream of a subscriber

	news chan struct{} // wakes await, in which the process waits for clients

	impatient chan struct{} // closed once the process was signalled
	abandoned chan struct{} // closed once no subscriber will read again
}

type subscriber struct {
	chunks chan *chunk // closed after the last chunk
	gone   chan struct{}
	leave  func() // closes gone
	cut    bool   // set before chunks is closed, if more output followed

	held *chunk // kept by gather for its next call; belongs to the reader

	replay     []piece // output from before the subscription, which is sent first; belongs to the reader
	replayCost int64

	// stream is a number that identifies the subscriber to its client, which connects again after a
	// cut. 0 means that the client does not connect again.
	stream   uint64
	received int64         // the number of bytes of output that this client is known to have
	asked    chan struct{} // requests of await for a report of received
}

// absence describes a client whose connection was cut and that is expected to connect again.
type absence struct {
	received int64     // the number of bytes of output that the client is known to have
	until    time.Time // the process waits until then
}

// newOutput returns an output with its first subscriber.
func newOutput(b *budget) (*output, *subscriber) {
	first := newSubscriber()
	o := &output{
		subscribers: []*subscriber{first},
		kept:        kept{budget: b},
		news:        make(chan struct{}, 1),
		impatient:   make(chan struct{}),
		abandoned:   make(chan struct{}),
	}
	b.join(o)
	return o, first
}

func newSubscriber() *subscriber {
	gone := make(chan struct{})
	return &subscriber{chunks: make(chan *chunk, queuedChunks), asked: make(chan struct{}, 1), gone: gone, leave: sync.OnceFunc(func() { close(gone) })}
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

// current returns the subscribers.
func (o *output) current() []*subscriber {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.subscribers
}

// fromNow is the offset of the output that is written from now on.
const fromNow = -1

// subscribeFrom adds a subscriber that first receives the kept output from an offset, or [fromNow].
// It returns the offset at which the subscriber's output begins. If the requested output is no longer
// kept, this is a later offset. If the output has ended, the subscriber receives the rest of it. replaced
// is the field stream of an earlier subscriber of the same client; 0: there was none. subscribeFrom
// removes the earlier subscriber, whose connection may not be known to be cut yet.
func (o *output) subscribeFrom(offset int64, replaced uint64) (*subscriber, int64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.subscribers {
		if replaced != 0 && s.stream == replaced {
			s.leave()
			o.drop(s)
		}
	}
	if replaced != 0 {
		o.expect(min(max(offset, o.kept.first), o.kept.next)) // if the request is refused, the client tries again
	}
	switch {
	case len(o.subscribers) >= maxSubscribers:
		return nil, 0, errTooManySubscribers
	case offset > o.kept.next:
		return nil, 0, &futureError{offset, o.kept.next}
	case offset == fromNow:
		offset = o.kept.next
	}
	offset = max(offset, o.kept.first)
	s := newSubscriber()
	o.streams++
	s.stream, s.received = o.streams, offset
	s.replay, s.replayCost = o.kept.from(offset)
	if err := o.kept.budget.replay(s.replayCost); err != nil {
		s.replayCost = 0
		s.dropReplay(o.kept.budget)
		return nil, 0, err
	}
	if o.ended {
		close(s.chunks)
	} else {
		o.subscribers = append(slices.Clip(o.subscribers), s)
	}
	o.away = nil
	o.wake()
	return s, offset, nil
}

// willReturn records that the client of s, the first subscriber, connects again after a cut.
func (o *output) willReturn(s *subscriber) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.streams++
	s.stream = o.streams
}

// receive records that the client of a stream has received the output before an offset.
func (o *output) receive(stream uint64, offset int64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if offset > o.kept.next {
		return &futureError{offset, o.kept.next}
	}
	for _, s := range o.subscribers {
		if s.stream == stream {
			s.received = max(s.received, offset)
			o.wake()
		}
	}
	return nil
}

func (o *output) wake() { wake(o.news) }

func wake(waiting chan<- struct{}) {
	select {
	case waiting <- struct{}{}:
	default:
	}
}

// replayed removes the first bytes of the replay, at most as many as one event has. The caller
// must send them before it calls replayed again. It returns nil if nothing is left.
func (s *subscriber) replayed() (of stream, data []byte) {
	for len(s.replay) > 0 {
		p := &s.replay[0]
		if n := min(len(p.data), p.of.limit()); n > 0 {
			data, p.data = p.data[:n], p.data[n:]
			return p.of, data
		}
		p.release()
		s.replay = s.replay[1:]
	}
	return 0, nil
}

func (s *subscriber) dropReplay(b *budget) {
	for i := range s.replay {
		s.replay[i].release()
	}
	s.replay = nil
	_ = b.replay(-s.replayCost) // a negative cost is always accepted
	s.replayCost = 0
}

// unsubscribe removes a subscriber. The reader of each subscriber must call it once. If the client of
// the subscriber connects again after a cut, the process waits for the client.
func (o *output) unsubscribe(s *subscriber) {
	s.dropReplay(o.kept.budget)
	s.leave()
	o.mu.Lock()
	defer o.mu.Unlock()
	if slices.Contains(o.subscribers, s) && s.stream != 0 {
		o.expect(s.received)
	}
	o.drop(s)
	o.wake()
}

// expect records that a client that has received this many bytes is absent and may connect again. If
// another one is absent, too, the process waits for the one that has received less. The caller holds o.mu.
func (o *output) expect(received int64) {
	now := time.Now()
	if o.away != nil && now.Before(o.away.until) {
		received = min(received, o.away.received)
	}
	o.away = &absence{received: received, until: now.Add(returnLimit)}
}

// await waits until n further bytes displace no output that a client may request after a cut. There are
// two such clients: the client of the oldest subscriber, if it connects again, and an absent client.
func (o *output) await(n int) {
	for {
		until, slow, wait := o.displaces(int64(n))
		if !wait {
			return
		}
		if slow != nil {
			wake(slow.asked)
		}
		limit := make(<-chan time.Time) // no limit
		if !until.IsZero() {
			timer := time.NewTimer(time.Until(until))
			defer timer.Stop()
			limit = timer.C
		}
		select {
		case <-o.news:
		case <-limit:
		case <-o.impatient:
			return
		case <-o.abandoned:
			return
		}
	}
}

// displaces reports whether n further bytes displace output that a client may request after a cut. If
// the client is absent, the process waits only until the returned time. Otherwise it waits, without a limit,
// for a report of the subscriber slow.
func (o *output) displaces(n int64) (until time.Time, slow *subscriber, wait bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.away != nil && !time.Now().Before(o.away.until) {
		o.away = nil
	}
	o.kept.trim(o.needed(o.kept.next)) // clients may have received more since the last chunk
	most := int64(maxOnTheWay)
	if o.kept.budget.scarce() {
		most = scarceOnTheWay
	}
	costly := o.kept.cost.Load()+maxAddCost > maxReplays
	full := func(received int64) bool {
		return o.kept.next+n-received > most || costly && o.kept.next > received
	}
	// A client that is present is not waited for because of the number of pieces: it reports what it has
	// received only after many bytes.
	crowded := len(o.kept.pieces)+2 > maxPieces
	if o.away != nil && (full(o.away.received) || crowded && o.kept.next > o.away.received) {
		return o.away.until, nil, true
	}
	if first := o.subscribers; len(first) > 0 && first[0].stream != 0 && full(first[0].received) {
		return time.Time{}, first[0], true
	}
	return time.Time{}, nil, false
}

// keep keeps the data of a chunk, and returns the subscribers that receive it.
func (o *output) keep(c *chunk) []*subscriber {
	defer o.kept.budget.reclaim()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kept.add(c, o.needed(o.kept.next+int64(len(c.data))))
	return o.subscribers
}

// needed returns the number of bytes before the offset next that are kept: the newest ones, and those
// that a client may not have received. The caller holds o.mu.
func (o *output) needed(next int64) int64 {
	limit := int64(maxKeptOutput)
	if o.away != nil {
		limit = max(limit, next-o.away.received)
	}
	if len(o.subscribers) > 0 && o.subscribers[0].stream != 0 {
		limit = max(limit, next-o.subscribers[0].received)
	}
	return min(limit, maxOnTheWay)
}

// dropKept drops the oldest kept piece, or all pieces. It reports whether it has dropped a piece.
func (o *output) dropKept(all bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	dropped := false
	for len(o.kept.pieces) > 0 && (all || !dropped) {
		o.kept.drop()
		dropped = true
	}
	return dropped
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
	o.drop(s)
}

// drop removes a subscriber; the caller holds mu.
func (o *output) drop(s *subscriber) {
	o.subscribers = slices.DeleteFunc(slices.Clone(o.subscribers), func(other *subscriber) bool { return other == s })
}

func (o *output) publish(c *chunk) {
	o.publishing.Lock()
	defer o.publishing.Unlock()
	o.await(len(c.data))
	subscribers := o.keep(c)
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
	o.kept.budget.end(o)
	o.publishing.Lock()
	defer o.publishing.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	o.kept.end()
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
