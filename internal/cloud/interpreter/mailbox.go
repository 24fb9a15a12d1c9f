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
	// patience is how long others wait for a client that does not read. One
	// that asked for what it gets slows its own execution as long as it likes.
	patience = 5 * time.Second
	// absence is how long a session is kept while it has no connection.
	absence = 10 * time.Minute
	// attachedBytes are on their way at most while there is a connection, and
	// absentBytes wait while there is none; or one message that is larger.
	attachedBytes = 4 << 20
	absentBytes   = 16 << 20
	// messageOverhead is counted for each message, which bounds their number.
	messageOverhead = 1 << 10
)

// mailbox is a client of a kernel as the kernel sees it: it holds what the client
// is told until the client has it. With a session_id it outlives its connection:
// the next one with the same session_id gets, in order, all that the one before
// has not acknowledged. Pings are what acknowledges, as every client answers them
// after what came before; so what was received and not yet acknowledged comes
// again, with the same msg_id.
type mailbox struct {
	server  *Server
	kernel  *runningKernel
	session string // empty lasts as long as its connection
	own     string // this end's session in headers
	client  *kernel.Client
	wake    chan struct{} // holds one token when there may be something to send

	mu       sync.Mutex
	messages []*jupyter.Message // not acknowledged, of which sent are sent
	sent     int
	first    uint64 // the number of messages[0]
	bytes    int
	question string // the msg_id of the last input_request
	reader   *socket
	changed  chan struct{} // closed when there may be room, and then replaced
	closed   bool
	expiry   *time.Timer // drops it; runs while there is no reader
}

var (
	errNoMailbox = errors.New("too many connections, or closing")
	// errReplaced is for a connection whose client has made another since.
	errReplaced = errors.New("another connection of the session has taken its place")
)

// openMailbox gives the mailbox of a session, with so as its connection. The one
// that it had ends first, unless it was asked for after so.
func (s *Server) openMailbox(so *socket) (*mailbox, error) {
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return nil, errNoMailbox
		}
		var b *mailbox
		if i := slices.IndexFunc(s.mailboxes, func(b *mailbox) bool {
			return so.session != "" && b.session == so.session && b.kernel == so.kernel
		}); i >= 0 {
			b = s.mailboxes[i]
		} else if b = s.newMailbox(so); b == nil {
			s.mu.Unlock()
			return nil, errNoMailbox
		}
		s.mu.Unlock()
		before, ok := b.attach(so)
		switch {
		case ok:
			return b, nil
		case before == nil: // dropped meanwhile
			continue
		case before.number > so.number: // the client dialled twice, and this one was late here
			return nil, errReplaced
		}
		before.shut()
		select {
		case <-before.done:
		case <-so.ctx.Done():
			return nil, errNoMailbox
		}
	}
}

// newMailbox makes room by dropping one without a connection, where it must. mu
// is held.
func (s *Server) newMailbox(so *socket) *mailbox {
	if len(s.mailboxes) >= maxSockets {
		i := slices.IndexFunc(s.mailboxes, func(b *mailbox) bool { return !b.attached() })
		if i < 0 {
			return nil
		}
		s.work.Go(s.mailboxes[i].drop)
		s.mailboxes = slices.Delete(s.mailboxes, i, i+1)
	}
	b := &mailbox{
		server: s, kernel: so.kernel, session: so.session, own: jupyter.NewID(),
		wake: make(chan struct{}, 1), changed: make(chan struct{}),
	}
	b.mu.Lock() // which deliver waits for
	b.expiry = time.AfterFunc(absence, b.drop)
	b.client = so.kernel.Attach(b.deliver)
	b.mu.Unlock()
	s.mailboxes = append(s.mailboxes, b)
	return b
}

// attach makes so the connection, to which all that is not acknowledged is sent.
// It gives the connection there is, if there is one, and nil for a mailbox that
// is dropped.
func (b *mailbox) attach(so *socket) (before *socket, ok bool) {
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

func (b *mailbox) attached() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reader != nil
}

// detach is called by the connection when it is over.
func (b *mailbox) detach() {
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

// retire ends a mailbox whose kernel is gone; its connection sends what there is.
func (b *mailbox) retire() {
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
func (b *mailbox) drop() {
	b.mu.Lock()
	b.closed, b.messages, b.sent, b.bytes = true, nil, 0, 0
	b.signal()
	b.expiry.Stop()
	b.mu.Unlock()
	b.client.Close()
	s := b.server
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mailboxes = slices.DeleteFunc(s.mailboxes, func(o *mailbox) bool { return o == b })
}

// signal wakes who waits for room. mu is held.
func (b *mailbox) signal() {
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *mailbox) poke() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// deliver is called by the kernel.
func (b *mailbox) deliver(ctx context.Context, e kernel.Event) {
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
		ctx, cancel = context.WithTimeout(ctx, patience)
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

// put adds a message, if there is room, and numbers it in its msg_id, as ipykernel
// does: a client that resumes can tell that it missed nothing. A mailbox that is
// dropped has room.
func (b *mailbox) put(m *jupyter.Message, limit int) bool {
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

// asksNoMore tells that a msg_id is that of a question before the last one. Of what
// else clients give as the parent of an answer nothing is known.
func (b *mailbox) asksNoMore(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return id != b.question && strings.HasPrefix(id, b.own+"_")
}

// answer adds what answers the client at once; one that asks and does not read
// is not waited for.
func (b *mailbox) answer(m *jupyter.Message) {
	if !b.put(m, absentBytes) {
		b.lose()
	}
}

// lose ends a mailbox that has missed something: better none than one with a gap.
func (b *mailbox) lose() {
	b.mu.Lock()
	b.closed = true
	reader := b.reader
	b.mu.Unlock()
	if reader != nil {
		reader.lost.Store(true)
		reader.shut() // which drops the mailbox
		return
	}
	b.server.background(func(context.Context) { b.drop() }) // the kernel must not be called by who it calls
}

// next gives the next message to send, nil when there is none now.
func (b *mailbox) next() *jupyter.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sent == len(b.messages) {
		return nil
	}
	b.sent++
	return b.messages[b.sent-1]
}

// position is the number behind the last message that was sent, and whether
// something that was sent is not acknowledged.
func (b *mailbox) position() (number uint64, pending bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.first + uint64(b.sent), b.sent > 0
}

// acknowledge forgets what was sent before the message of this number.
func (b *mailbox) acknowledge(number uint64) {
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
