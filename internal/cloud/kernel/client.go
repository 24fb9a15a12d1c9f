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

// Bounds of the requests that wait for a kernel. The first request always fits.
const (
	maxQueue      = 1024
	maxQueueBytes = 64 << 20
)

// Errors of executions that were not raised by Python, in the words of E2B's
// service.
var (
	// Died ends an execution whose kernel died.
	Died = jupyter.ErrorContent{Name: "ContextRestarting", Value: "Context was restarted", Traceback: []string{}}
	// Ended ends an execution whose kernel was restarted or closed on request.
	Ended = jupyter.ErrorContent{
		Name:      "UnexpectedEndOfExecution",
		Value:     "Connection to the execution was closed before the execution was finished",
		Traceback: []string{},
	}

	interrupted    = jupyter.ErrorContent{Name: "KeyboardInterrupt", Traceback: []string{"KeyboardInterrupt"}}
	abortedContent = json.RawMessage(`{"status":"aborted"}`)
)

// Event is one message of a kernel to its clients.
type Event struct {
	// Channel is [jupyter.IOPub] for an event to all clients, and [jupyter.Shell] or
	// [jupyter.Stdin] for an event to the client that made the request.
	Channel string
	// Type is the msg_type and Content the content of the Jupyter message.
	Type    string
	Content json.RawMessage
	// Buffers are the message's binary parts; nil for nearly all messages.
	Buffers [][]byte
	// Request is the request to which the event belongs. Nil means none.
	Request *Request
	// Time is the time of the event's arrival.
	Time time.Time
}

// Request is one message on the shell channel. Make a new one for each [Client.Submit].
type Request struct {
	// Header is the parent of all answers; its MsgType is the kind of request.
	Header jupyter.Header
	// Content is the content of the message, an object.
	Content json.RawMessage
	// Buffers are the message's binary parts, which a comm may have.
	Buffers [][]byte
	// Env holds environment variables for this execution only.
	Env map[string]string

	client      *Client
	stopOnError bool
	done        chan struct{} // closed when it is answered

	// Set once it is being served; guarded by Kernel.mu.
	proc        *process
	number      uint64
	armed       bool // an interrupt takes effect
	interrupted bool
	signals     uint64    // interrupts sent to the process
	signalled   time.Time // when the first of them was sent

	position int // in the queue, as last reported to the client; guarded by Kernel.emitting
}

// Done returns a channel that is closed when r is over and all of its events were
// delivered. It is valid after [Client.Submit], and stays open if r was cancelled
// before it ran.
func (r *Request) Done() <-chan struct{} { return r.done }

// By reports whether c made the request.
func (r *Request) By(c *Client) bool { return r.client == c }

func (r *Request) finished() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// Client receives the events of a kernel and sends it requests.
type Client struct {
	kernel  *Kernel
	deliver func(context.Context, Event)
}

// Attach makes a client. deliver is called with one event after the other, and the
// kernel waits for it: a slow client slows the kernel down. When ctx is done
// deliver must return without waiting. It must not call methods of the kernel or
// the client. The caller must close the client.
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

// Submit puts r into the kernel's queue. The answer to r is complete when the
// status idle of r has been delivered. The error is [ErrClosed] or [ErrQueueFull].
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

// Cancel takes r out of the queue, or interrupts it if it is running. It has no
// effect on a request that is already answered.
func (c *Client) Cancel(r *Request) {
	k := c.kernel
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unqueue(func(q *Request) bool { return q == r })
	if k.current == r {
		k.interrupt()
	}
}

// Answer answers the input_request that was sent to this client. It does nothing if
// there is none.
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

// Close ends the client: it receives no more events. Its requests go on, but a question
// to it raises EOFError.
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

// The methods below send events to clients; emitting is held.

// emit sends an event of the last request to all clients.
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

// reply answers r and marks it as over.
func (k *Kernel) reply(ctx context.Context, r *Request, content json.RawMessage) {
	if k.attached(r.client) {
		r.client.deliver(ctx, Event{Channel: jupyter.Shell, Type: ReplyType(r.Header.MsgType), Content: content, Request: r, Time: time.Now()})
	}
	k.status(ctx, r, jupyter.StateIdle)
}

// fail answers r, which did not run, or not to its end.
func (k *Kernel) fail(r *Request, e jupyter.ErrorContent) {
	if e.Traceback == nil {
		e.Traceback = []string{e.Name + ": " + e.Value}
	}
	// Clients rely on all three fields being present, even if empty.
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
	// This is the question of a thread that outlives its cell, while nothing runs:
	// nobody can answer it.
	if r == nil || r.finished() || !k.attached(r.client) {
		return p.send(&link.Command{Type: "input_reply", Seq: m.Seq, EOF: true})
	}
	k.mu.Lock()
	k.asking, k.asker = m.Seq, r.client
	k.mu.Unlock()
	r.client.deliver(p.ctx, Event{Channel: jupyter.Stdin, Type: m.Type, Content: m.Content, Request: r, Time: time.Now()})
	// A client that was closed in the meantime may have missed the question.
	if !k.attached(r.client) {
		return r.client.answer(&link.Command{Type: "input_reply", EOF: true})
	}
	return nil
}
