package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/jupyter"
)

const (
	// username stands in the header of messages.
	username = "e2b"
	// queue is how many messages of an execution wait for whoever reads them;
	// then the connection waits, and with it the kernel.
	queue = 64
	// otherHalf is how long after the reply the idle may come, or the reverse:
	// they travel on different sockets behind the server.
	otherHalf = 10 * time.Second
	// An interrupt may come when Python does not look: it is repeated, and then
	// the kernel is restarted.
	interruptEvery = 2 * time.Second
	interruptTries = 3
	// endOfInput makes Python's input() raise EOFError.
	endOfInput = "\x04"
)

// kernel is the connection to the kernel of one context. One execution at a
// time goes over it, so that an interrupt never meets another one of ours.
type kernel struct {
	runner  *codeRunner
	id      string // of the context, too
	session string
	conn    *jupyter.Conn
	turn    chan struct{} // held by who executes
	done    chan struct{} // closed when the connection has ended
	primed  bool          // the sandbox's environment is set; guarded by turn

	mu      sync.Mutex
	current *execution
	ended   bool
}

// execution is a request that is under way.
type execution struct {
	id       string
	messages chan *jupyter.Message // closed when the connection ends
	left     chan struct{}         // closed when nobody reads messages any more

	reply               jupyter.ExecuteReply
	busy, began         bool // it is the kernel's turn; its code was seen to run
	replied, idle, over bool
}

// executionHandler is told what an execution says, in order, from the goroutine
// that executes. An error of either interrupts the execution and is returned.
type executionHandler struct {
	// message is given every message on iopub that is the execution's. May be
	// nil.
	message func(*jupyter.Message) error
	// input answers a request for input; it may outlive the execution when it
	// does not heed ctx. Nil means that the code cannot ask.
	input func(ctx context.Context, prompt string, password bool) (string, error)
}

func newKernel(runner *codeRunner, id, session string, conn *jupyter.Conn) *kernel {
	k := &kernel{
		runner: runner, id: id, session: session, conn: conn,
		turn: make(chan struct{}, 1), done: make(chan struct{}),
	}
	go k.receive()
	return k
}

// receive hands messages to the execution that they belong to until the
// connection ends.
func (k *kernel) receive() {
	defer close(k.done)
	for {
		m, err := k.conn.Receive()
		k.mu.Lock()
		e := k.current
		if err != nil {
			k.ended = true
			if e != nil {
				close(e.messages)
			}
			k.mu.Unlock()
			return
		}
		k.mu.Unlock()
		if e == nil || m.Parent.MsgID != e.id && !deadly(m) {
			continue
		}
		select {
		case e.messages <- m:
		case <-e.left:
		}
	}
}

// deadly tells a status that ends every execution, whoever asked.
func deadly(m *jupyter.Message) bool {
	return m.Header.MsgType == "status" && (statusOf(m).ExecutionState == "restarting" || statusOf(m).ExecutionState == "dead")
}

// statusOf is zero where the content is none.
func statusOf(m *jupyter.Message) jupyter.StatusContent {
	var status jupyter.StatusContent
	if json.Unmarshal(m.Content, &status) != nil {
		return jupyter.StatusContent{}
	}
	return status
}

// kernelDied is [ErrKernelDied], with the reason where the service knows it.
func kernelDied(reason string) error {
	if reason == "" {
		return ErrKernelDied
	}
	return fmt.Errorf("%w: %s", ErrKernelDied, shorten(reason, 256))
}

// send starts an execution.
func (k *kernel) send(request jupyter.ExecuteRequest) (*execution, error) {
	content, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	header := jupyter.NewHeader("execute_request", k.session, username)
	e := &execution{id: header.MsgID, messages: make(chan *jupyter.Message, queue), left: make(chan struct{})}
	k.mu.Lock()
	if k.ended {
		k.mu.Unlock()
		return nil, errNotSent
	}
	k.current = e
	k.mu.Unlock()
	if err := k.conn.Send(&jupyter.Message{Channel: jupyter.Shell, Header: header, Content: content}); err != nil {
		k.leave(e)
		_ = k.conn.Close()
		return nil, fmt.Errorf("%w: %w", ErrKernelLost, err)
	}
	return e, nil
}

// errNotSent: the connection had ended before the code was sent.
var errNotSent = fmt.Errorf("the kernel's connection has ended: %w", api.ErrRetryable)

// leave ends what receive does for an execution.
func (k *kernel) leave(e *execution) {
	close(e.left)
	k.mu.Lock()
	k.current = nil
	k.mu.Unlock()
}

// execute runs a request when it is its turn. envs are set for it alone. When
// the kernel drops it unrun, which it does to what waits behind a failure of
// another client's, it is sent once more.
func (k *kernel) execute(ctx context.Context, request jupyter.ExecuteRequest, h executionHandler, envs map[string]string) (jupyter.ExecuteReply, error) {
	if err := deadlock(ctx, k.runner.sb.ID(), k.id); err != nil {
		return jupyter.ExecuteReply{}, err
	}
	select {
	case k.turn <- struct{}{}:
		return k.hold(ctx, request, h, envs)
	case <-ctx.Done():
		return jupyter.ExecuteReply{}, context.Cause(ctx)
	case <-k.done:
		return jupyter.ExecuteReply{}, errNotSent
	}
}

// whenFree runs a request unless another execution is under way.
func (k *kernel) whenFree(ctx context.Context, request jupyter.ExecuteRequest) (jupyter.ExecuteReply, error) {
	select {
	case k.turn <- struct{}{}:
		return k.hold(ctx, request, executionHandler{}, nil)
	default:
		return jupyter.ExecuteReply{}, errors.New("the kernel is busy")
	}
}

// hold executes in its turn, and gives the turn back when the execution is over
// and its traces are gone.
func (k *kernel) hold(ctx context.Context, request jupyter.ExecuteRequest, h executionHandler, envs map[string]string) (jupyter.ExecuteReply, error) {
	e, err := k.prepare(ctx, envs)
	if err == nil {
		e, err = k.once(ctx, request, h)
		if err == nil && e.dropped() {
			if e, err = k.once(ctx, request, h); err == nil && e.dropped() {
				err = fmt.Errorf("the kernel dropped the code twice without running it: %w", api.ErrRetryable)
			}
		}
	}
	if e == nil {
		<-k.turn
		return jupyter.ExecuteReply{}, err
	}
	reply := e.reply
	if e.over && len(envs) == 0 {
		<-k.turn
		return reply, err
	}
	k.runner.sb.background(ctx, func(ctx context.Context) {
		defer func() { <-k.turn }()
		if !e.over {
			k.stop(ctx, e)
		}
		if len(envs) == 0 {
			return
		}
		if e, err := k.once(ctx, silently(restoreEnvs), executionHandler{}); err != nil && e != nil && !e.over {
			k.stop(ctx, e)
		}
	})
	return reply, err
}

// dropped tells that the kernel answered without having run the code.
func (e *execution) dropped() bool {
	return (e.reply.Status == "aborted" || e.reply.Status == "abort") && !e.began
}

// prepare sets the environment of the sandbox, once, and that of the call.
func (k *kernel) prepare(ctx context.Context, envs map[string]string) (*execution, error) {
	var steps []string
	if !k.primed {
		if common := k.runner.environment(ctx); len(common) > 0 {
			steps = append(steps, completeEnvs(common))
		}
	}
	if len(envs) > 0 {
		steps = append(steps, replaceEnvs(envs))
	}
	for _, code := range steps {
		e, err := k.once(ctx, silently(code), executionHandler{})
		if err == nil && e.reply.Status != "ok" {
			err = fmt.Errorf("set environment variables: %s: %s", e.reply.Name, shorten(e.reply.Value, 256))
		}
		if err != nil {
			return e, err
		}
	}
	k.primed = true
	return nil, nil
}

// once runs a request. The execution is nil when it was not sent; it is over
// unless it still runs.
func (k *kernel) once(ctx context.Context, request jupyter.ExecuteRequest, h executionHandler) (*execution, error) {
	request.AllowStdin = h.input != nil
	if request.UserExpressions == nil {
		request.UserExpressions = map[string]string{}
	}
	e, err := k.send(request)
	if err != nil {
		return nil, err
	}
	err = k.follow(ctx, e, h)
	if e.over {
		k.leave(e)
	}
	return e, err
}

// follow reads what an execution says until it is over, ctx ends or the handler
// fails.
func (k *kernel) follow(ctx context.Context, e *execution, h executionHandler) error {
	type answer struct {
		to    jupyter.Header
		value string
		err   error
	}
	answers := make(chan answer, 1)
	inputs, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		var half <-chan time.Time
		if e.replied != e.idle {
			half = time.After(otherHalf)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-half:
			e.over = true
			return fmt.Errorf("the kernel did not say that it is done: output may be missing: %w", ErrKernelLost)
		case a := <-answers:
			if errors.Is(a.err, io.EOF) {
				a.value, a.err = endOfInput, nil
			}
			if a.err != nil {
				return fmt.Errorf("answer the code's request for input: %w", a.err)
			}
			if err := k.answer(a.to, a.value); err != nil {
				e.over = true
				_ = k.conn.Close()
				return fmt.Errorf("%w: %w", ErrKernelLost, err)
			}
		case m, ok := <-e.messages:
			if !ok {
				e.over = true
				return ErrKernelLost
			}
			if err := e.note(m); err != nil {
				k.primed = false
				return err
			}
			if m.Header.MsgType == "input_request" {
				var request jupyter.InputRequest
				if err := json.Unmarshal(m.Content, &request); err != nil || h.input == nil {
					answers <- answer{to: m.Header, err: io.EOF}
					continue
				}
				go func() {
					value, err := h.input(inputs, request.Prompt, request.Password)
					answers <- answer{m.Header, value, err}
				}()
				continue
			}
			if m.Channel == jupyter.IOPub && h.message != nil {
				if err := h.message(m); err != nil {
					return err
				}
			}
			if e.over {
				return nil
			}
		}
	}
}

// note reads from a message how far the execution is: it is over when both the
// reply and the idle have come, in whatever order.
func (e *execution) note(m *jupyter.Message) error {
	switch m.Header.MsgType {
	case "execute_reply":
		if err := json.Unmarshal(m.Content, &e.reply); err != nil {
			e.over = true
			return fmt.Errorf("%w: its reply is malformed: %w", ErrKernelLost, err)
		}
		e.replied = true
	case "execute_input", "stream", "execute_result", "display_data", "error":
		e.began = true
	case "status":
		switch status := statusOf(m); status.ExecutionState {
		case "busy":
			e.busy = true
		case "idle":
			e.idle = true
		case "restarting", "dead":
			e.over = true
			return kernelDied(status.Reason)
		}
	}
	e.over = e.replied && e.idle
	return nil
}

func (k *kernel) answer(to jupyter.Header, value string) error {
	content, err := json.Marshal(jupyter.InputReply{Value: value})
	if err != nil {
		return err
	}
	return k.conn.Send(&jupyter.Message{
		Channel: jupyter.Stdin, Header: jupyter.NewHeader("input_reply", k.session, username), Parent: to, Content: content,
	})
}

// stop interrupts an execution that was given up and sees it to its end;
// failing that it restarts the kernel, and failing that it leaves it alone.
func (k *kernel) stop(ctx context.Context, e *execution) {
	defer k.leave(e)
	tick := time.NewTimer(0)
	defer tick.Stop()
	for tries := 0; !e.over; {
		select {
		case <-ctx.Done():
			_ = k.conn.Close()
			return
		case m, ok := <-e.messages:
			if !ok || e.note(m) != nil {
				k.primed = false
				return
			}
		case <-tick.C:
			tick.Reset(interruptEvery)
			if !e.busy {
				tick.Reset(interruptEvery / 50) // it waits for another client's code
				continue
			}
			tries++
			if tries <= interruptTries {
				k.interrupt(ctx)
				continue
			}
			k.primed = false
			if err := k.control(ctx, "restart"); err != nil {
				k.runner.sb.client.api.Logger().WarnContext(ctx, "code that was given up may still run", "sandbox", k.runner.sb.ID(), "context", k.id, "error", err)
			}
			_ = k.conn.Close()
			return
		}
	}
}

// interrupt works by request for every kernel, by message for most: the
// message is for servers without the request.
func (k *kernel) interrupt(ctx context.Context) {
	if k.control(ctx, "interrupt") != nil {
		_ = k.conn.Send(&jupyter.Message{
			Channel: jupyter.Control, Header: jupyter.NewHeader("interrupt_request", k.session, username), Content: json.RawMessage("{}"),
		})
	}
}

// control asks the server to do something with the kernel.
func (k *kernel) control(ctx context.Context, verb string) error {
	server := portClient{k.runner.sb, jupyterPort}
	path := "/api/kernels/" + k.id + "/" + verb
	r, err := server.request(ctx, http.MethodPost, path, nil)
	if err != nil {
		return err
	}
	response, err := server.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if response.StatusCode > 299 {
		return api.ResponseError(r.Method, path, response.StatusCode, response.Header, body)
	}
	return nil
}

// close ends the connection and waits for what reads it.
func (k *kernel) close() {
	_ = k.conn.Close()
	<-k.done
}
