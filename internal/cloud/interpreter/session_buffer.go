//go:build linux

package interpreter

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/kernel"
	"github.com/e2bctl/e2bctl/internal/jupyter"
)

const (
	// slowPatience bounds the time that other clients wait for a client that does not read. It does
	// not apply to the output of this client's own requests: a client may slow down its own execution
	// without a bound.
	slowPatience = 5 * time.Second
	// absence bounds the time that a session without a connection is kept.
	absence = 10 * time.Minute
	// attachedBytes bounds the bytes of messages in transit while the session has a connection.
	// absentBytes bounds the bytes of messages that wait while the session has no connection. A single
	// message may exceed either bound.
	attachedBytes = 4 << 20
	absentBytes   = 16 << 20
	// messageOverhead is added to the size of each message. So the bounds on bytes also bound the
	// number of messages.
	messageOverhead = 1 << 10
)

// sessionBuffer represents one client of a kernel. It keeps the messages for the client until the
// client has acknowledged them. If the client has a session_id, the buffer outlives its connection.
// The next connection with the same session_id receives, in order, every message that the client did
// not acknowledge on the previous connection. The answer to a ping serves as an acknowledgement,
// because every client answers a ping after it has read the earlier messages. So a message that was
// received but not acknowledged is sent again, with the same msg_id.
type sessionBuffer struct {
	server  *Server
	kernel  *runningKernel
	session string // session_id of the client; if "", the buffer ends with its connection
	own     string // session id of this server, for message headers
	client  *kernel.Client
	wake    chan struct{} // contains one token when there may be a message to send

	mu       sync.Mutex
	messages []*jupyter.Message // unacknowledged messages; the messages before index sent have been sent
	sent     int
	first    uint64 // number of the message messages[0]
	bytes    int
	question string // msg_id of the last input_request
	reader   *socket
	changed  chan struct{} // closed when there may be space for more messages, and then replaced
	closed   bool
	expiry   *time.Timer // drops the buffer; runs while there is no connection
}

var (
	errNoBuffer = errors.New("too many connections, or closing")
	// errReplaced ends a connection after its client has opened another connection.
	errReplaced = errors.New("another connection of the session has taken its place")
	// errRemoved ends a connection whose kernel was removed while the connection was being
	// opened.
	errRemoved = errors.New("the kernel was removed")
)

// openBuffer returns the buffer of a session, and makes so the buffer's connection. If the buffer
// already has a connection that was requested before so, openBuffer ends this older connection. If
// the buffer's connection was requested after so, openBuffer returns an error.
func (s *Server) openBuffer(so *socket) (*sessionBuffer, error) {
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return nil, errNoBuffer
		}
		// removeKernel has already ended the kernel's buffers, so a new one would never end.
		if !slices.Contains(s.kernels, so.kernel) {
			s.mu.Unlock()
			return nil, errRemoved
		}
		var b *sessionBuffer
		if i := slices.IndexFunc(s.buffers, func(b *sessionBuffer) bool {
			return so.session != "" && b.session == so.session && b.kernel == so.kernel
		}); i >= 0 {
			b = s.buffers[i]
		} else if b = s.newBuffer(so); b == nil {
			s.mu.Unlock()
			return nil, errNoBuffer
		}
		s.mu.Unlock()
		before, ok := b.attach(so)
		switch {
		case ok:
			return b, nil
		case before == nil: // the buffer was dropped meanwhile
			continue
		case before.number > so.number: // the client dialled twice, and this is the earlier connection
			return nil, errReplaced
		}
		before.shut()
		select {
		case <-before.done:
		case <-so.ctx.Done():
			return nil, errNoBuffer
		}
	}
}

// newBuffer creates a buffer. If there are too many buffers, newBuffer first drops a buffer that has
// no connection. The caller holds mu.
func (s *Server) newBuffer(so *socket) *sessionBuffer {
	if len(s.buffers) >= maxSockets {
		i := slices.IndexFunc(s.buffers, func(b *sessionBuffer) bool { return !b.attached() })
		if i < 0 {
			return nil
		}
		s.work.Go(s.buffers[i].drop)
		s.buffers = slices.Delete(s.buffers, i, i+1)
	}
	b := &sessionBuffer{
		server: s, kernel: so.kernel, session: so.session, own: jupyter.NewID(),
		wake: make(chan struct{}, 1), changed: make(chan struct{}),
	}
	b.mu.Lock() // deliver waits for this lock
	b.expiry = time.AfterFunc(absence, b.drop)
	b.client = so.kernel.Attach(b.deliver)
	b.mu.Unlock()
	s.buffers = append(s.buffers, b)
	return b
}

// attach makes so the connection of the buffer, and sends all unacknowledged messages to it. If
// the buffer already has a connection, attach returns that connection and false. If the buffer
// was dropped, it returns nil and false.
func (b *sessionBuffer) attach(so *socket) (before *socket, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.reader != nil {
		return b.reader, false
	}
	b.expiry.Stop()
	b.reader, b.sent = so, 0
	b.poke()
	return nil, true
}

func (b *sessionBuffer) attached() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reader != nil
}

// detach removes the buffer's connection, after the connection has ended.
func (b *sessionBuffer) detach() {
	b.mu.Lock()
	b.reader = nil
	b.signal()
	b.expiry.Reset(absence)
	keep := b.session != "" && !b.closed
	b.mu.Unlock()
	if !keep {
		b.drop()
	}
}

// retire ends a buffer whose kernel has ended. The connection still sends the remaining
// messages.
func (b *sessionBuffer) retire() {
	b.mu.Lock()
	b.closed = true
	reader := b.reader
	b.mu.Unlock()
	if reader != nil {
		reader.shut()
		return
	}
	b.drop()
}

// drop ends the buffer and closes the client of the kernel.
func (b *sessionBuffer) drop() {
	b.mu.Lock()
	b.closed, b.messages, b.sent, b.bytes = true, nil, 0, 0
	b.signal()
	b.expiry.Stop()
	b.mu.Unlock()
	b.client.Close()
	s := b.server
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buffers = slices.DeleteFunc(s.buffers, func(o *sessionBuffer) bool { return o == b })
}

// signal wakes the goroutines that wait for space. The caller holds mu.
func (b *sessionBuffer) signal() {
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *sessionBuffer) poke() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// deliver receives the events of the kernel.
func (b *sessionBuffer) deliver(ctx context.Context, e kernel.Event) {
	m := &jupyter.Message{
		Channel: e.Channel, Header: jupyter.NewHeader(e.Type, b.own, "username"), Content: e.Content, Buffers: e.Buffers,
	}
	asked := false
	if e.Request != nil {
		m.Parent = e.Request.Header
		b.mu.Lock()
		asked = e.Request.By(b.client)
		b.mu.Unlock()
	}
	if b.put(m, attachedBytes, e.More) {
		return
	}
	if !asked {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, slowPatience)
		defer cancel()
	}
	for {
		b.mu.Lock()
		changed, reader := b.changed, b.reader
		b.mu.Unlock()
		limit := attachedBytes
		if reader == nil {
			limit = absentBytes
		}
		if b.put(m, limit, e.More) {
			return
		}
		if reader == nil {
			b.lose()
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			b.lose()
			return
		}
	}
}

// put adds a message if there is space, and reports whether there was space. A dropped buffer always
// has space. If more is true, the message waits for the next one, to be sent together with it. As in ipykernel, put appends the number of the message to the msg_id, so that a client
// that resumes can check whether it has missed a message.
func (b *sessionBuffer) put(m *jupyter.Message, limit int, more bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return true
	}
	n := weight(m)
	if b.bytes > 0 && b.bytes+n > limit {
		b.poke() // the messages that wait for this one must be sent now
		return false
	}
	m.Header.MsgID = b.own + "_" + strconv.FormatUint(b.first+uint64(len(b.messages)), 10)
	if m.Channel == jupyter.Stdin {
		b.question = m.Header.MsgID
	}
	b.messages, b.bytes = append(b.messages, m), b.bytes+n
	if !more {
		b.poke()
	}
	return true
}

// asksNoMore reports whether a client answers an input_request that was followed by a newer
// input_request. id is the msg_id of the parent of the client's answer. If id is not a msg_id of this
// buffer, asksNoMore returns false.
func (b *sessionBuffer) asksNoMore(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return id != b.question && strings.HasPrefix(id, b.own+"_")
}

// answer adds a message that this server makes, and not the kernel. answer does not wait for a client
// that sends requests and does not read: if there is no space, answer ends the buffer.
func (b *sessionBuffer) answer(m *jupyter.Message) {
	if !b.put(m, absentBytes, false) {
		b.lose()
	}
}

// lose ends a buffer that has missed a message, because a gap would mislead the client.
func (b *sessionBuffer) lose() {
	b.mu.Lock()
	b.closed = true
	reader := b.reader
	b.mu.Unlock()
	if reader != nil {
		reader.lost.Store(true)
		reader.shut() // this also drops the buffer
		return
	}
	b.server.background(func(context.Context) { b.drop() }) // in the background, because the kernel calls lose and must not be called back
}

// next returns the next message to send. It returns nil if there is no message to send now.
func (b *sessionBuffer) next() *jupyter.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sent == len(b.messages) {
		return nil
	}
	b.sent++
	return b.messages[b.sent-1]
}

// position returns the number of the last sent message plus one. pending reports whether a sent
// message is not acknowledged yet.
func (b *sessionBuffer) position() (number uint64, pending bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.first + uint64(b.sent), b.sent > 0
}

// acknowledge removes the messages that were sent before the message with this number.
func (b *sessionBuffer) acknowledge(number uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if number <= b.first {
		return
	}
	n := int(min(number-b.first, uint64(b.sent)))
	for _, m := range b.messages[:n] {
		b.bytes -= weight(m)
	}
	clear(b.messages[:n])
	b.messages = b.messages[n:]
	b.sent -= n
	b.first += uint64(n)
	b.signal()
	b.poke()
}

func weight(m *jupyter.Message) int {
	n := messageOverhead + len(m.Content)
	for _, buffer := range m.Buffers {
		n += len(buffer)
	}
	return n
}
