//go:build linux

package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/cloud/kernel/link"
	"github.com/e2bctl/e2bctl/internal/cloud/kernel/zmq"
	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// Spec describes how to run a kernel.
type Spec struct {
	// Python is the beginning of the argv of the interpreter that runs the driver. The program is an
	// absolute path, or a name. A name is searched in PATH at every start, because an interpreter may
	// be installed in a sandbox at any time. If Python is empty, starts fail with ErrNoPython.
	Python []string
	// Jupyter is the Jupyter kernel that runs instead of the driver. nil means that the driver runs.
	Jupyter *zmq.Spec
	// Wasm runs the driver in WebAssembly. If Wasm is nil, the interpreter that the field Python names
	// runs the driver.
	Wasm *Wasm
	// Driver is the path of the script that package python wrote.
	Driver string
	// Environ returns the environment. It is called at every start.
	Environ func() ([]string, error)
	// Credential is the user of the kernel. nil means the user of this process.
	Credential *syscall.Credential
	// Dir is the working directory of user code. If it cannot be entered, the kernel reports
	// this on stderr and runs in "/".
	Dir string
	// Memory detects that a kernel was killed because memory ran out. nil means that such a kill is
	// not detected.
	Memory *child.Memory
	// Scratch is a directory for the connection files of Jupyter kernels. AnswerTimeout bounds
	// operations that a Jupyter kernel should complete at once; 0 means 10 seconds.
	Scratch       string
	AnswerTimeout time.Duration
	// Warm forks the process where possible. Nil means that the process always starts cold.
	Warm *Warm
	// Logger must not be nil.
	Logger *slog.Logger
}

// program returns the name that errors use for the kernel.
func (s *Spec) program() string {
	if s.Jupyter != nil {
		return s.Jupyter.Name
	}
	if s.Wasm != nil {
		return s.Wasm.Command[0]
	}
	if len(s.Python) == 0 {
		return "python3"
	}
	return s.Python[0]
}

var (
	// ErrClosed is the error of a call of a closed kernel.
	ErrClosed = errors.New("kernel: closed")
	// ErrNoPython is the error of a kernel without an interpreter. Its text is for people who
	// operate the machine.
	ErrNoPython = errors.New("the machine that this sandbox runs on has no python3: install Python 3.9 or newer there, or name one in E2BCTL_PYTHON, and start the local cloud again")
	// ErrNotInImage is the error of a kernel in a sandbox with an image, if the image has no
	// interpreter for the kernel.
	ErrNotInImage = errors.New("the image of this sandbox has none in its PATH: install Python 3.9 or newer in the image or in the sandbox; commands work without")
	// ErrQueueFull is the error of a request that is refused because too many requests already wait.
	ErrQueueFull = errors.New("kernel: too many requests wait; try again when some are answered")
)

// Kernel runs requests one at a time, in the order of their arrival. Its process starts with
// the first request or with [Kernel.Start]. A process that dies is replaced: its state is lost,
// but the Kernel stays usable. All methods are safe for concurrent use.
type Kernel struct {
	spec Spec
	wake chan struct{} // contains one token when there may be work
	// moved contains one token when positions in the queue may have changed.
	moved chan struct{}
	// ctx ends with Close.
	ctx    context.Context //nolint:containedctx // the life of the kernel, not of a call
	cancel context.CancelFunc
	loop   sync.WaitGroup

	// starting serialises the starts of processes: it is held during each start. It is locked before
	// emitting and mu.
	starting sync.Mutex

	// emitting orders all events to clients. It is held while events are delivered. So a slow client
	// slows down the kernel. emitting is locked before mu.
	emitting sync.Mutex
	// parent is the request to which output belongs: the last request that ran. Guarded by
	// emitting.
	parent *Request

	mu         sync.Mutex
	closed     bool
	clients    []*Client
	queue      []*Request
	queueBytes int
	current    *Request // request that is being served
	proc       *process // the running process; nil before the start and after the end of a process
	info       link.Info
	state      string
	activity   time.Time
	served     bool   // proc has completed a request
	cold       bool   // the modules of the sandbox have other versions than those of the zygote
	revive     bool   // proc ended by itself: start the next process now
	asking     uint64 // number of the input_request that waits for a reply; the client asker must send the reply
	asker      *Client
}

// New creates a kernel without a process. The caller must close the kernel.
func New(spec Spec) *Kernel {
	k := &Kernel{spec: spec, wake: make(chan struct{}, 1), moved: make(chan struct{}, 1), state: jupyter.StateIdle, activity: time.Now()}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	k.loop.Go(k.run)
	k.loop.Go(k.announce)
	return k
}

// State returns the kernel's current state, and the time of its last activity. A kernel whose
// process has not started yet is idle.
func (k *Kernel) State() (state string, activity time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state, k.activity
}

// Busy reports whether the kernel serves a request, or requests wait.
func (k *Kernel) Busy() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.current != nil || len(k.queue) > 0
}

// Start starts the kernel's process if no process runs. Start returns when the process accepts
// requests. The process outlives ctx.
func (k *Kernel) Start(ctx context.Context) (link.Info, error) {
	k.starting.Lock()
	defer k.starting.Unlock()
	return k.start(ctx)
}

func (k *Kernel) startsWarm(environ []string) bool {
	k.mu.Lock()
	cold := k.cold
	k.mu.Unlock()
	return !cold && k.spec.Warm != nil && k.spec.Warm.fits(environ)
}

// start implements Start. The caller holds starting.
func (k *Kernel) start(ctx context.Context) (link.Info, error) {
	k.mu.Lock()
	if k.closed || k.proc != nil {
		defer k.mu.Unlock()
		if k.closed {
			return link.Info{}, ErrClosed
		}
		return k.info, nil
	}
	k.state = jupyter.StateStarting
	k.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(k.ctx, func() { cancel(ErrClosed) })()
	began := time.Now()
	p, info, err := k.startReady(ctx)
	k.mu.Lock()
	if err == nil && k.closed {
		err = ErrClosed
	}
	if err == nil && p.over { // the process ended after it reported that it was ready
		err = p.err
	}
	if err == nil {
		k.proc, k.info, k.state, k.served = p, info, jupyter.StateIdle, false
	} else {
		k.state = jupyter.StateDead
	}
	k.activity = time.Now()
	k.mu.Unlock()
	if err != nil {
		if p != nil {
			p.kill()
			<-p.done
		}
		return link.Info{}, fmt.Errorf("kernel: start %s: %w", k.spec.program(), err)
	}
	k.spec.Logger.InfoContext(ctx, "kernel started", "program", k.spec.program(), "engine", info.Engine, "took", time.Since(began))
	if info.Note != "" {
		k.spec.Logger.WarnContext(ctx, "kernel without IPython", "note", info.Note)
	}
	return info, nil
}

// startReady starts a process and waits until the process is ready. If startReady returns an error,
// p is nil or has ended.
func (k *Kernel) startReady(ctx context.Context) (p *process, info link.Info, err error) {
	const tries = 3 // another program may take a port that was free before
	for range tries {
		if p, err = startProcess(ctx, k); err != nil {
			return nil, link.Info{}, err
		}
		if info, err = p.waitReady(ctx); !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return p, info, err
}

// Interrupt raises KeyboardInterrupt in the running code, and sends SIGINT to processes that
// the code started. It does nothing if no code runs.
func (k *Kernel) Interrupt() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.interrupt()
}

// interrupt implements Interrupt. The caller holds mu.
func (k *Kernel) interrupt() {
	if k.current == nil {
		return
	}
	r := k.current
	r.interrupted = true
	if r.armed && k.proc != nil {
		k.signal(r, k.proc)
	}
}

// signal interrupts the process that serves r. The caller holds mu.
func (k *Kernel) signal(r *Request, p *process) {
	if k.spec.Wasm != nil && p.endsHeedless(r) {
		return
	}
	r.signals++
	p.interrupt(r.signals)
}

// Restart ends the process, and returns when a new process is ready. The running request ends
// with [Ended]. Waiting requests run in the new process.
func (k *Kernel) Restart(ctx context.Context) error {
	k.starting.Lock()
	defer k.starting.Unlock()
	k.mu.Lock()
	p := k.proc
	if p != nil {
		p.reason = Ended
		k.state = jupyter.StateRestarting
	}
	k.mu.Unlock()
	if p != nil {
		k.spec.Logger.InfoContext(ctx, "kernel is restarted by request")
		p.kill()
		<-p.done
	}
	_, err := k.start(ctx)
	return err
}

// Close ends the kernel's process and all processes that this process started. The running request
// and all waiting requests end with [Ended]. Close returns when all processes have ended.
func (k *Kernel) Close() error {
	k.mu.Lock()
	k.closed = true
	if k.proc != nil {
		k.proc.reason = Ended
	}
	k.mu.Unlock()
	k.cancel()
	k.starting.Lock() // waits for a running start to end
	k.mu.Lock()
	p := k.proc
	k.mu.Unlock()
	k.starting.Unlock()
	if p != nil {
		p.kill()
		<-p.done
	}
	k.loop.Wait()
	k.mu.Lock()
	rest := k.queue
	k.queue, k.queueBytes, k.state = nil, 0, jupyter.StateDead
	k.mu.Unlock()
	k.emitting.Lock()
	defer k.emitting.Unlock()
	for _, r := range rest {
		k.fail(r, Ended)
		close(r.done)
	}
	return nil
}

// run serves the requests in the queue.
func (k *Kernel) run() {
	for {
		select {
		case <-k.ctx.Done():
			return
		case <-k.wake:
		}
		k.mu.Lock()
		revive := k.revive
		k.revive = false
		k.mu.Unlock()
		if revive {
			if _, err := k.Start(k.ctx); err != nil && k.ctx.Err() == nil {
				k.spec.Logger.WarnContext(k.ctx, "kernel could not be restarted", "error", err)
			}
		}
		for r := k.next(); r != nil; r = k.next() {
			k.serve(r)
		}
	}
}

// next removes the first request from the queue and returns it.
func (k *Kernel) next() *Request {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.queue) == 0 || k.closed {
		return nil
	}
	r := k.queue[0]
	k.queue = slices.Delete(k.queue, 0, 1)
	k.queueBytes -= len(r.Content)
	k.current = r
	if len(k.queue) > 0 {
		k.queueMoved()
	}
	return r
}

// serve runs one request, from the status busy to the status idle.
func (k *Kernel) serve(r *Request) {
	killed := k.spec.Memory.Count()
	defer func() {
		if n := killed(); n > 0 {
			k.spec.Logger.WarnContext(k.ctx, "memory ran out while code ran, and processes of the sandbox were killed", "killed", n)
		}
	}()
	start := func() (link.Info, error) { return k.Start(k.ctx) }
	if r.Header.MsgType == "execute_request" {
		start = k.fresh
		begun := time.Now()
		defer func() { k.spec.Logger.InfoContext(k.ctx, "code ended", "took", time.Since(begun)) }()
	}
	info, err := start()
	k.mu.Lock()
	p := k.proc
	refuse := r.interrupted && err == nil // interrupted before it could begin
	if err == nil && !refuse && p != nil {
		k.state, k.activity = jupyter.StateBusy, time.Now()
		r.proc = p
		r.number = newNumber()
	}
	k.mu.Unlock()
	k.emitting.Lock()
	if !r.finished() { // unless the end of p has finished r
		ctx := k.ctx
		if p != nil {
			ctx = p.ctx
		}
		k.parent = r
		k.status(ctx, r, jupyter.StateBusy)
		switch content := k.answer(r.Header.MsgType, info); {
		case errors.Is(err, ErrClosed):
			k.finish(r, func() { k.fail(r, Ended) })
		case err != nil:
			k.finish(r, func() { k.fail(r, jupyter.ErrorContent{Name: "KernelStartError", Value: err.Error()}) })
		case refuse:
			k.finish(r, func() { k.fail(r, interrupted) })
		case p == nil:
			k.finish(r, func() { k.fail(r, Died) })
		case content != nil:
			k.finish(r, func() {
				if r.Header.MsgType == "comm_open" {
					k.emit(ctx, "comm_close", refuseComm(r.Content))
				}
				k.reply(ctx, r, content)
			})
		}
	}
	k.emitting.Unlock()
	if r.finished() {
		return
	}
	if err := p.send(&link.Command{Type: r.Header.MsgType, Content: r.Content, ID: r.number, Env: r.Env, Buffers: r.Buffers}); err != nil {
		p.kill() // the process does not read: killing it ends the request
	}
	select {
	case <-r.done:
	case <-p.done: // this finished r, unless p ended before
		k.emitting.Lock()
		if !r.finished() {
			k.finish(r, func() { k.fail(r, Died) })
		}
		k.emitting.Unlock()
	}
}

// finish ends r, which no longer runs. tell sends the last events of r. The caller holds
// emitting.
func (k *Kernel) finish(r *Request, tell func()) {
	k.mu.Lock()
	asking := k.asking
	k.current, k.asking, k.activity = nil, 0, time.Now()
	if k.state == jupyter.StateBusy {
		k.state = jupyter.StateIdle
	}
	k.mu.Unlock()
	if asking != 0 && r.proc != nil {
		// A thread that outlives the code has asked, and no client will answer.
		_ = r.proc.send(&link.Command{Type: "input_reply", Seq: asking, EOF: true})
	}
	tell()
	close(r.done)
}

// ended handles the end of the process p. It is called after all messages of p were delivered.
func (k *Kernel) ended(p *process) {
	k.emitting.Lock()
	defer k.emitting.Unlock()
	k.mu.Lock()
	p.over = true
	if k.proc != p { // p never became ready
		k.mu.Unlock()
		return
	}
	k.proc = nil
	r, why := k.current, p.reason
	if r != nil && r.proc != p {
		r = nil
	}
	died := why.Name == "" // no client requested the end
	if died {
		why = Died
		// A process that dies before it has completed a request would die again and again.
		k.revive = k.served || r != nil
	}
	k.state, k.activity = jupyter.StateRestarting, time.Now()
	over, replaced := k.closed, p.replaced
	if p.heedless {
		p.ending = "its code did not heed an interrupt, and in WebAssembly nothing else stops code"
	}
	k.mu.Unlock()
	if replaced {
		return
	}
	if died {
		k.spec.Logger.WarnContext(k.ctx, "kernel died", "error", p.err, "stderr", string(p.tail))
	}
	state := jupyter.StatusContent{ExecutionState: jupyter.StateRestarting}
	if over {
		state.ExecutionState = jupyter.StateDead
	}
	if died {
		state.Reason = p.ending
		if errors.Is(p.err, child.ErrOutOfMemory) {
			state.Reason = p.err.Error()
		}
	}
	if state.Reason != "" {
		why.Value += ": " + state.Reason
	}
	k.broadcast(k.ctx, Event{Type: "status", Content: jupyter.Encode(state)})
	if r != nil {
		k.finish(r, func() { k.fail(r, why) })
	}
	k.parent = nil // output of the next process must not be added to an old request
	k.poke()
}

func (k *Kernel) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// handle handles a message of the driver. The caller holds emitting.
func (k *Kernel) handle(p *process, m *link.Message) error {
	switch m.Type {
	case "ready":
		var info link.Info
		if p.running {
			return fmt.Errorf("%w: ready for the second time", errLine)
		}
		if err := json.Unmarshal(m.Content, &info); err != nil {
			return fmt.Errorf("%w: ready: %w", errLine, err)
		}
		p.running = true
		p.ready <- info
	case "armed":
		k.arm(p)
	case "checked":
		return p.handleChecked(m)
	case "ending":
		return p.handleEnding(m)
	case "sync":
		return p.send(&link.Command{Type: "ack", Seq: m.Seq})
	case "reply":
		return k.handleReply(p, m)
	case "input_request":
		return k.handleInput(p, m)
	case "execute_input":
		k.arm(p)
		k.emit(p.ctx, m.Type, m.Content)
	case "stream", "display_data", "update_display_data", "clear_output", "execute_result", "error",
		"comm_open", "comm_msg", "comm_close":
		k.broadcast(p.ctx, Event{Type: m.Type, Content: m.Content, Buffers: m.Buffers, Request: k.parent, More: m.Replied})
	default:
		return fmt.Errorf("%w: type %.40q", errLine, m.Type)
	}
	return nil
}

// arm records that the current request has begun. From then on, an interrupt has an effect.
func (k *Kernel) arm(p *process) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.current
	if r == nil || r.proc != p || r.armed {
		return
	}
	r.armed = true
	if r.interrupted {
		k.signal(r, p)
	}
}

func (k *Kernel) handleReply(p *process, m *link.Message) error {
	var reply struct {
		Status string `json:"status"`
	}
	if err := json.Unmarshal(m.Content, &reply); err != nil {
		return fmt.Errorf("%w: reply: %w", errLine, err)
	}
	k.mu.Lock()
	r := k.current
	if r == nil || r.proc != p || r.number != m.ID {
		k.mu.Unlock()
		return fmt.Errorf("%w: reply to %d, which does not run", errLine, m.ID)
	}
	k.served = true
	var aborted []*Request
	if reply.Status != "ok" && r.stopOnError {
		// They must be removed before the client learns of the error, because requests that it
		// sends afterwards must run.
		aborted = k.unqueue(func(q *Request) bool { return q.client == r.client && q.Header.MsgType == "execute_request" })
	}
	k.mu.Unlock()
	for _, pipe := range p.pipes {
		p.output(pipe, pipe.end())
	}
	k.finish(r, func() { k.reply(p.ctx, r, m.Content) })
	for _, q := range aborted {
		k.status(p.ctx, q, jupyter.StateBusy)
		k.reply(p.ctx, q, abortedContent)
		close(q.done)
	}
	return nil
}

// unqueue removes from the queue the requests for which match returns true. It returns the removed
// requests. The caller holds mu.
func (k *Kernel) unqueue(match func(*Request) bool) []*Request {
	var out []*Request
	k.queue = slices.DeleteFunc(k.queue, func(q *Request) bool {
		if !match(q) {
			return false
		}
		k.queueBytes -= len(q.Content)
		out = append(out, q)
		return true
	})
	return out
}
