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
	// slowPatience limits the wait of others for a client that does not read. It does not
	// apply to the output of the client's own requests: a client may slow down its own
	// execution for as long as it likes.
	slowPatience = 5 * time.Second
	// absence limits the time that a session is kept while it has no connection.
	absence = 10 * time.Minute
	// attachedBytes bounds the messages in transit while there is a connection,
	// absentBytes those that wait while there is none. A single message may be
	// larger.
	attachedBytes = 4 << 20
	absentBytes   = 16 << 20
	// messageOverhead is added to the size of each message, which bounds their
	// number.
	messageOverhead = 1 << 10
)

// sessionBuffer is one client of a kernel, as the kernel sees it: it holds the messages
// for the client until the client has received them. With a session_id it outlives
// its connection: the next one with the same session_id gets, in order, everything
// that the one before has not acknowledged. Pings serve as acknowledgements,
// because every client answers them after it has read what came before. So a
// message that was received but not yet acknowledged is sent again, with the same
// msg_id.
type sessionBuffer struct {
	server  *Server
	kernel  *runningKernel
	session string // empty: the buffer ends with its connection
	own     string // the session of this server in headers
	client  *kernel.Client
	wake    chan struct{} // holds one token when there may be something to send

	mu       sync.Mutex
	messages []*jupyter.Message // the unacknowledged messages; the first sent of them were sent
	sent     int
	first    uint64 // the number of messages[0]
	bytes    int
	question string // the msg_id of the last input_request
	reader   *socket
	changed  chan struct{} // closed when there may be space, then replaced
	closed   bool
	expiry   *time.Timer // drops the buffer; runs while there is no reader
}

var (
	errNoBuffer = errors.New("too many connections, or closing")
	// errReplaced ends a connection whose client has opened another one since.
	errReplaced = errors.New("another connection of the session has taken its place")
	// errRemoved ends a connection whose kernel was removed while it was opened.
	errRemoved = errors.New("the kernel was removed")
)

// openBuffer returns the buffer of a session, with so as its connection. A
// connection that the buffer already had ends first, unless it was requested after
// so.
func (s *Server) openBuffer(so *socket) (*sessionBuffer, error) {
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return nil, errNoBuffer
		}
		// removeKernel has ended the existing buffers: nothing would end a new one.
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
		case before == nil: // dropped in the meantime
			continue
		case before.number > so.number: // the client dialled twice, and this connection is the earlier one
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

// newBuffer makes a buffer. If there are too many it first drops one without a
// connection. mu is held.
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

// attach makes so the connection of the buffer, and sends it everything that
// is not acknowledged. If the buffer has a connection already, attach returns
// that one and false. If the buffer was dropped, it returns nil and false.
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

// detach is called by the connection when it has ended.
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

// retire ends a buffer whose kernel is gone. Its connection still sends the remaining
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

// drop ends the client.
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

// signal wakes callers that wait for space. mu is held.
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

// deliver is called by the kernel.
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
	if b.put(m, attachedBytes) {
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
		if b.put(m, limit) {
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

// put adds a message if there is space, and puts its number into its msg_id, as
// ipykernel does, so a client that resumes can check that it missed nothing. A
// buffer that was dropped always has space.
func (b *sessionBuffer) put(m *jupyter.Message, limit int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return true
	}
	n := weight(m)
	if b.bytes > 0 && b.bytes+n > limit {
		return false
	}
	m.Header.MsgID = b.own + "_" + strconv.FormatUint(b.first+uint64(len(b.messages)), 10)
	if m.Channel == jupyter.Stdin {
		b.question = m.Header.MsgID
	}
	b.messages, b.bytes = append(b.messages, m), b.bytes+n
	b.poke()
	return true
}

// asksNoMore reports whether msg_id belongs to a question before the last one. Nothing
// is known about other ids that clients send as the parent of an answer.
func (b *sessionBuffer) asksNoMore(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return id != b.question && strings.HasPrefix(id, b.own+"_")
}

// answer adds a message that is answered without the kernel. It does not wait for a
// client that sends requests and does not read.
func (b *sessionBuffer) answer(m *jupyter.Message) {
	if !b.put(m, absentBytes) {
		b.lose()
	}
}

// lose ends a buffer that has missed a message: no buffer is better than one with
// a gap.
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
	b.server.background(func(context.Context) { b.drop() }) // in the background, because the kernel is calling this and must not be called back
}

// next returns the next message to send, or nil if there is none now.
func (b *sessionBuffer) next() *jupyter.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sent == len(b.messages) {
		return nil
	}
	b.sent++
	return b.messages[b.sent-1]
}

// position returns the number that follows the last message that was sent, and
// whether any sent message is not acknowledged yet.
func (b *sessionBuffer) position() (number uint64, pending bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.first + uint64(b.sent), b.sent > 0
}

// acknowledge removes the messages that were sent before the one with this number.
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
