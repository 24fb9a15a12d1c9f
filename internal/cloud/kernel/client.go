//go:build linux

package kernel

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/kernel/link"
	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// Bounds of the requests that wait for a kernel. A single request of any size fits.
const (
	maxQueue      = 1024
	maxQueueBytes = 64 << 20
)

// Errors of executions. The executed code itself did not raise these errors. Their wording is that of
// E2B's service.
var (
	// Died is the error of an execution whose kernel died.
	Died = jupyter.ErrorContent{Name: "ContextRestarting", Value: "Context was restarted", Traceback: []string{}}
	// Ended is the error of an execution whose kernel was restarted or closed on request.
	Ended = jupyter.ErrorContent{
		Name:      "UnexpectedEndOfExecution",
		Value:     "Connection to the execution was closed before the execution was finished",
		Traceback: []string{},
	}

	interrupted    = jupyter.ErrorContent{Name: "KeyboardInterrupt", Traceback: []string{"KeyboardInterrupt"}}
	abortedContent = json.RawMessage(`{"status":"aborted"}`)
)

// Event is a message of a kernel to its clients.
type Event struct {
	// Channel is [jupyter.IOPub] for an event to all clients. It is [jupyter.Shell] or
	// [jupyter.Stdin] for an event to the client that sent the request.
	Channel string
	// Type is the msg_type of the Jupyter message. Content is the content of the message.
	Type    string
	Content json.RawMessage
	// Buffers are the binary parts of the message. They are nil for nearly all messages.
	Buffers [][]byte
	// Request is the request to which the event belongs. Nil means that the event belongs to no
	// request.
	Request *Request
	// Time is the time when the event arrived.
	Time time.Time
	// More means that another event for the same client follows at once, so that both can be sent
	// together.
	More bool
}

// Request is a message on the shell channel. Each [Client.Submit] needs a new Request.
type Request struct {
	// Header is the parent of all answers. Its MsgType is the kind of request.
	Header jupyter.Header
	// Content is the content of the message, a JSON object.
	Content json.RawMessage
	// Buffers are the binary parts of the message. Messages of comms may have them.
	Buffers [][]byte
	// Env contains environment variables for this execution only.
	Env map[string]string

	client      *Client
	stopOnError bool
	done        chan struct{} // closed when the request is answered

	// The fields from proc to signalled are set once the request is being served; guarded by
	// Kernel.mu.
	proc        *process
	number      uint64
	armed       bool // from now on, an interrupt has an effect
	interrupted bool
	signals     uint64    // number of interrupts that were sent to the process
	signalled   time.Time // time of the first interrupt

	position int // position in the queue that was last reported to the client; guarded by Kernel.emitting
}

// Done returns a channel that is closed when r has ended and all of its events were delivered. If r
// was cancelled before it ran, the channel stays open. Done may be called only after
// [Client.Submit].
func (r *Request) Done() <-chan struct{} { return r.done }

// By reports whether c sent the request.
func (r *Request) By(c *Client) bool { return r.client == c }

func (r *Request) finished() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// Client receives the events of a kernel, and sends requests to the kernel.
type Client struct {
	kernel  *Kernel
	deliver func(context.Context, Event)
}

// Attach creates a client. The kernel calls deliver with one event at a time and waits until deliver
// returns. So a slow client slows down the kernel. When the context of the call is done, deliver must
// return without waiting. deliver must not call methods of the kernel or of the client. The caller
// must close the client.
func (k *Kernel) Attach(deliver func(context.Context, Event)) *Client {
	c := &Client{kernel: k, deliver: deliver}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.clients = append(k.clients, c)
	return c
}

// Connections returns the number of clients.
func (k *Kernel) Connections() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.clients)
}

// Submit adds r to the kernel's queue. The answer to r is complete when the event of type status with
// the state idle has been delivered for r. The error is [ErrClosed] or [ErrQueueFull].
func (c *Client) Submit(r *Request) error {
	if len(r.Content) == 0 {
		r.Content = json.RawMessage("{}")
	}
	options := struct {
		StopOnError bool `json:"stop_on_error"`
	}{StopOnError: true}
	if err := json.Unmarshal(r.Content, &options); err != nil {
		return fmt.Errorf("kernel: content of %s: %w", r.Header.MsgType, err)
	}
	r.client, r.stopOnError, r.done = c, options.StopOnError, make(chan struct{})
	k := c.kernel
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.closed:
		return ErrClosed
	case len(k.queue) >= maxQueue || len(k.queue) > 0 && k.queueBytes+len(r.Content) > maxQueueBytes:
		return ErrQueueFull
	}
	k.queue = append(k.queue, r)
	k.queueBytes += len(r.Content)
	k.poke()
	if k.current != nil || len(k.queue) > 1 {
		k.queueMoved()
	}
	return nil
}

// Cancel removes r from the queue, or interrupts r if it is running. It has no effect if r is
// already answered.
func (c *Client) Cancel(r *Request) {
	k := c.kernel
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unqueue(func(q *Request) bool { return q == r })
	if k.current == r {
		k.interrupt()
	}
}

// Answer answers the input_request that was sent to this client. It does nothing if there is no
// input_request.
func (c *Client) Answer(value string) error {
	return c.answer(&link.Command{Type: "input_reply", Value: value})
}

func (c *Client) answer(reply *link.Command) error {
	k := c.kernel
	k.mu.Lock()
	p := k.proc
	if p == nil || k.asking == 0 || k.asker != c {
		k.mu.Unlock()
		return nil
	}
	reply.Seq, k.asking = k.asking, 0
	k.mu.Unlock()
	return p.send(reply)
}

// Close closes the client. The client then receives no more events. Its requests continue. If the
// code of such a request asks for input, the code gets an EOFError.
func (c *Client) Close() {
	k := c.kernel
	k.mu.Lock()
	k.clients = slices.DeleteFunc(k.clients, func(o *Client) bool { return o == c })
	k.mu.Unlock()
	_ = c.answer(&link.Command{Type: "input_reply", EOF: true})
}

// attached reports whether c is not closed.
func (k *Kernel) attached(c *Client) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Contains(k.clients, c)
}

// The methods below send events to clients. Their caller holds emitting.

// emit sends an event to all clients. The event belongs to parent, the last request that ran.
func (k *Kernel) emit(ctx context.Context, msgType string, content json.RawMessage) {
	k.broadcast(ctx, Event{Type: msgType, Content: content, Request: k.parent})
}

func (k *Kernel) broadcast(ctx context.Context, e Event) {
	e.Channel, e.Time = jupyter.IOPub, time.Now()
	k.mu.Lock()
	clients := slices.Clone(k.clients)
	k.mu.Unlock()
	for _, c := range clients {
		c.deliver(ctx, e)
	}
}

func (k *Kernel) status(ctx context.Context, r *Request, state string) {
	k.broadcast(ctx, Event{Type: "status", Content: jupyter.Encode(jupyter.StatusContent{ExecutionState: state}), Request: r})
}

// reply answers r, and marks r as finished.
func (k *Kernel) reply(ctx context.Context, r *Request, content json.RawMessage) {
	if k.attached(r.client) {
		r.client.deliver(ctx, Event{Channel: jupyter.Shell, Type: ReplyType(r.Header.MsgType), Content: content, Request: r, Time: time.Now(), More: true})
	}
	k.status(ctx, r, jupyter.StateIdle)
}

// fail answers r with an error. r did not run, or did not run to its end.
func (k *Kernel) fail(r *Request, e jupyter.ErrorContent) {
	if e.Traceback == nil {
		e.Traceback = []string{e.Name + ": " + e.Value}
	}
	// All three fields must be present, even if empty, because clients rely on them.
	content := map[string]any{"ename": e.Name, "evalue": e.Value, "traceback": e.Traceback}
	if r.Header.MsgType == "execute_request" {
		k.broadcast(k.ctx, Event{Type: "error", Content: jupyter.Encode(content), Request: r})
	}
	content["status"] = "error"
	content["execution_count"] = 0
	k.reply(k.ctx, r, jupyter.Encode(content))
}

func (k *Kernel) handleInput(p *process, m *link.Message) error {
	r := k.parent
	// A thread that outlives its cell asks this question while no request runs, so no client
	// can answer it.
	if r == nil || r.finished() || !k.attached(r.client) {
		return p.send(&link.Command{Type: "input_reply", Seq: m.Seq, EOF: true})
	}
	k.mu.Lock()
	k.asking, k.asker = m.Seq, r.client
	k.mu.Unlock()
	r.client.deliver(p.ctx, Event{Channel: jupyter.Stdin, Type: m.Type, Content: m.Content, Request: r, Time: time.Now()})
	// A client that was closed meanwhile may have missed the question.
	if !k.attached(r.client) {
		return r.client.answer(&link.Command{Type: "input_reply", EOF: true})
	}
	return nil
}
