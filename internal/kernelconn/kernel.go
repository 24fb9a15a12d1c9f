package kernelconn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/e2bctl/e2bctl/internal/jupyter"
)

const (
	// username is the name of the user in the header of messages.
	username = "e2b"
	// queue bounds the number of messages of an execution that wait for their reader. When so many
	// messages wait, the connection is not read, and so the kernel waits, too.
	queue = 64
)

// Kernel is the connection to the kernel of one context. It has one execution at a time, so that an
// interrupt never hits another execution of this program. If its websocket is cut during an
// execution, the connection continues over another websocket of the same session.
type Kernel struct {
	kernels  *Kernels
	id       string // the id of the kernel, and also of its context
	language string // the language of the kernel's code
	session  string
	turn     chan struct{} // held by the running call
	inTurn   atomic.Int32  // the number of calls that hold the turn or wait for it
	primed   atomic.Bool   // the sandbox's environment is set, or being set
	heard    atomic.Bool   // the kernel has sent something
	reading  sync.WaitGroup
	done     chan struct{} // closed when there is no websocket, and none will be opened again

	// interruptSent is closed when the server has answered the last interrupt of interruptAside. It is
	// nil if there was no such interrupt. Only the holder of the turn uses it.
	interruptSent <-chan struct{}
	// unproven is set until it is certain that messages on iopub arrive. Only the holder of the turn
	// uses it.
	unproven bool

	// life ends when close is called.
	life context.Context //nolint:containedctx // the life of the connection, not of a call
	shut context.CancelFunc

	mu      sync.Mutex
	conn    *jupyter.Conn
	made    time.Time // the time at which conn was opened; only the holder of the turn uses it
	broken  bool      // the websocket conn has ended
	tooBig  bool      // conn ended because a message was too big for the server
	current *execution
	seen    sequence
	used    bool // the kernel may have variables that this handle's code set
	doomed  bool // stop is replacing the kernel; it reports this to the next call, and closes the websocket
	spent   bool // the kernel has ended, and the websocket is about to end
}

// newKernel returns a Kernel that uses the websocket conn. fresh means that the kernel replaced a
// kernel that had ended.
func newKernel(kernels *Kernels, id, language, session string, conn *jupyter.Conn, fresh bool) *Kernel {
	k := &Kernel{
		kernels: kernels, id: id, language: language, session: session, conn: conn, made: time.Now(), unproven: fresh,
		turn: make(chan struct{}, 1), done: make(chan struct{}),
	}
	k.life, k.shut = context.WithCancel(context.Background())
	k.reading.Go(func() { k.receive(conn) })
	return k
}

// ID returns the id of the kernel. The context of the kernel has the same id.
func (k *Kernel) ID() string { return k.id }

// Language returns the language of the kernel's code.
func (k *Kernel) Language() string { return k.language }

// Done returns a channel that is closed when the connection has ended and will not be opened again.
func (k *Kernel) Done() <-chan struct{} { return k.done }

// receive passes messages to their execution until the websocket ends. Then it passes nil.
func (k *Kernel) receive(conn *jupyter.Conn) {
	for {
		m, err := conn.Receive()
		k.mu.Lock()
		e := k.current
		if err != nil {
			k.broken, k.tooBig = true, errors.Is(err, jupyter.ErrTooBig)
			if e == nil {
				close(k.done)
			}
			k.mu.Unlock()
			if e != nil {
				e.give(nil)
			}
			return
		}
		k.heard.Store(true)
		fresh := k.seen.note(m.Header.MsgID, e != nil && e.resumed)
		ours := e != nil && e.concerns(m)
		k.mu.Unlock()
		switch {
		case fresh && ours:
			k.hand(e, m)
		case e == nil:
			k.unread(m)
		}
	}
}

// send sends a request, and returns its execution.
func (k *Kernel) send(r request) (*execution, error) {
	content, err := json.Marshal(r.content)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	header := jupyter.NewHeader(r.kind+"_request", k.session, username)
	e := &execution{id: header.MsgID, answer: r.kind + "_reply", runsCode: r.runsCode, sent: time.Now(), messages: make(chan *jupyter.Message, queue), left: make(chan struct{})}
	k.mu.Lock()
	if k.broken {
		k.mu.Unlock()
		return nil, errStale
	}
	conn := k.conn
	k.current = e
	k.seen.begin()
	k.mu.Unlock()
	if err := conn.Send(&jupyter.Message{Channel: jupyter.Shell, Header: header, Content: content}); err != nil {
		// A message that was written only in part is never processed.
		k.leave(e)
		_ = conn.Close()
		<-k.done // until then other calls would get this connection
		if k.refused() {
			return nil, errTooBig
		}
		return nil, fmt.Errorf("%w: %w", errStale, err)
	}
	return e, nil
}

// hand passes a message to an execution. If the execution ends at the same time, the message may
// remain unread.
func (k *Kernel) hand(e *execution, m *jupyter.Message) {
	if !e.give(m) {
		k.unread(m)
		return
	}
	select {
	case <-e.left:
		k.sweep(e)
	default:
	}
}

// leave stops receive from passing messages to an execution. If a question is still open, leave turns
// it down like a question of a thread that outlives its cell, because no handler can answer the
// question from now on.
func (k *Kernel) leave(e *execution) {
	close(e.left)
	k.turnDown(e.asked)
	k.sweep(e)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current = nil
	if k.broken {
		close(k.done)
	}
}

// sweep discards the messages that nobody will read.
func (k *Kernel) sweep(e *execution) {
	for {
		select {
		case m := <-e.messages:
			k.unread(m)
		default:
			return
		}
	}
}

// unread handles a message that arrived while no call was reading.
func (k *Kernel) unread(m *jupyter.Message) {
	if m == nil {
		return
	}
	fate := fateOf(m)
	if !fate.deadly() {
		k.turnDown(m)
		return
	}
	k.mu.Lock()
	used, doomed := k.used, k.doomed
	k.spent = !doomed
	k.mu.Unlock()
	if doomed {
		return // a waiting call must not use another websocket before replace has recorded the reason
	}
	k.kernels.noteEnd(k.id)
	if used {
		k.kernels.lose(k.id, cmp.Or(fate.reason, "its kernel died"))
	}
	k.hangUp()
}

// refused reports whether a message was larger than the server accepts.
func (k *Kernel) refused() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.tooBig
}

// unfinished returns the execution in progress.
func (k *Kernel) unfinished() *execution {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.current
}

// write sends a message that belongs to the execution in progress. If sending fails, the websocket
// can no longer be used, and receive notices that the websocket has ended.
func (k *Kernel) write(channel, kind string, parent jupyter.Header, content json.RawMessage) (ok bool) {
	k.mu.Lock()
	conn := k.conn
	k.mu.Unlock()
	err := conn.Send(&jupyter.Message{Channel: channel, Header: jupyter.NewHeader(kind, k.session, username), Parent: parent, Content: content})
	if err != nil {
		_ = conn.Close()
	}
	return err == nil
}

// hangUp ends the websocket. receive then notices the end. If the kernel ended, the next call needs
// a new websocket. Over the old websocket, the server would still accept code for a kernel that no
// longer exists. The old websocket may also miss the first messages of a fresh kernel.
func (k *Kernel) hangUp() {
	k.mu.Lock()
	conn := k.conn
	k.mu.Unlock()
	_ = conn.Close()
}

// close ends the connection and waits for the goroutine that reads it.
func (k *Kernel) close() {
	k.mu.Lock()
	k.shut()
	conn := k.conn
	k.mu.Unlock()
	_ = conn.Close()
	k.reading.Wait()
}
