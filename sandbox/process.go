package sandbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/internal/boundproto"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/gen/process/processconnect"
	"github.com/e2bctl/e2bctl/internal/httpwait"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

const (
	// keepalive is the interval, in seconds, of keepalive messages on a silent stream, because
	// proxies cut silent streams.
	keepalive = "50"
	// startTimeout limits the time of a process's start.
	startTimeout = time.Minute
	// killGrace is the time between a process's deadline and the kill by the daemon. At the deadline
	// this client requests a kill of the process. The daemon kills the process by itself only if this
	// request does not arrive.
	killGrace = 2 * time.Second
	// endGrace limits the time for which a stream remains open after the end of its process.
	endGrace = time.Second
	// maxEvent limits the bytes of one message of the daemon, which sends at most 32 KiB of
	// output at once.
	maxEvent = 4 << 20
	// maxProcessMessages limits the messages nested in one message of the daemon: a listed process
	// contains two messages, and one more for each environment variable.
	maxProcessMessages = 100_000
	// inputChunk limits the bytes of input in one message.
	inputChunk = 32 << 10
)

// attachment is a process of the sandbox with its stream of events.
type attachment struct {
	sb     *Sandbox
	user   string
	pid    uint32
	config *process.ProcessConfig // nil if another handle started the process
	events eventStream
	begun  time.Time // the time at which the stream was requested

	id        string       // names the process in requests for kept output
	streamID  string       // names the stream
	resumable bool         // the daemon keeps output, and knows id
	offset    atomic.Int64 // the bytes of the process's output before the next event

	outputHeld, outputCut bool // set by follow and followOn: see CommandResult

	mu       sync.Mutex
	stream   context.CancelFunc
	left     bool          // cancel was called
	gone     bool          // the pid no longer belongs to the process
	inputErr error         // set if some input may not have arrived
	away     chan struct{} // not nil after a pause has cut off the stream; closed when the stream is open again or has ended for good
}

// cancel ends the stream, and any stream that replaces it later.
func (a *attachment) cancel() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left = true
	a.stream()
}

// eventStream is the stream of answers to Start or Connect. The two streams differ only in their
// types.
type eventStream interface {
	Receive() bool
	event() *process.ProcessEvent
	Err() error
	Close() error
	ResponseHeader() http.Header  // valid once Receive has returned
	ResponseTrailer() http.Header // valid once Receive has returned false
}

type startEvents struct {
	*connect.ServerStreamForClient[process.StartResponse]
}

func (s startEvents) event() *process.ProcessEvent { return s.Msg().GetEvent() }

type connectEvents struct {
	*connect.ServerStreamForClient[process.ConnectResponse]
}

func (s connectEvents) event() *process.ProcessEvent { return s.Msg().GetEvent() }

// startProcess starts a process and waits for its start until ctx or life ends. It sends the daemon
// the deadline of life. If ctx or life ends before the start, a process that may have been started
// is killed in the background. If the answer is cut off, startProcess looks for the process.
func (sb *Sandbox) startProcess(ctx, life context.Context, user string, msg *process.StartRequest) (*attachment, error) {
	from := outputFrom{of: rand.Text()}
	a, err := sb.attach(ctx, life, user, true, from, func(ctx context.Context) (eventStream, error) {
		stream, err := sb.processes.Start(ctx, streamRequest(user, msg, from))
		return startEvents{stream}, err
	})
	if wasCut(err) {
		if found, _ := sb.findStarted(ctx, life, user, from); found != nil {
			a, err = found, nil
		}
	}
	if err == nil {
		a.config = msg.GetProcess()
	}
	return a, err
}

// connectProcess connects to a process that runs or that ended recently.
func (sb *Sandbox) connectProcess(ctx, life context.Context, user string, selector *process.ProcessSelector, from outputFrom) (*attachment, error) {
	a, err := sb.attach(ctx, life, user, false, from, sb.opensConnect(user, selector, from))
	if pid, byPID := selector.GetSelector().(*process.ProcessSelector_Pid); err == nil && byPID && a.pid != pid.Pid {
		a.release()
		return nil, fmt.Errorf("asked for process %d, the daemon answered with %d", pid.Pid, a.pid)
	}
	return a, err
}

// opensConnect returns a function that sends a Connect request.
func (sb *Sandbox) opensConnect(user string, selector *process.ProcessSelector, from outputFrom) func(context.Context) (eventStream, error) {
	return func(ctx context.Context) (eventStream, error) {
		stream, err := sb.processes.Connect(ctx, streamRequest(user, &process.ConnectRequest{Process: selector}, from))
		return connectEvents{stream}, err
	}
}

func streamRequest[T any](user string, msg *T, from outputFrom) *connect.Request[T] {
	request := connect.NewRequest(msg)
	from.set(request.Header())
	asUser(request.Header(), user)
	request.Header().Set("Keepalive-Ping-Interval", keepalive)
	return request
}

// attach opens a stream and reads its first message. starts reports whether the stream starts a
// process.
func (sb *Sandbox) attach(ctx, life context.Context, user string, starts bool, from outputFrom, open func(context.Context) (eventStream, error)) (*attachment, error) {
	// The stream outlives ctx, because only its first message contains the pid to kill.
	stream, cancel := context.WithCancel(context.WithoutCancel(life))
	if deadline, ok := life.Deadline(); ok {
		stream, cancel = context.WithDeadline(stream, deadline.Add(killGrace))
	}
	a := &attachment{sb: sb, user: user, begun: time.Now(), stream: cancel}
	opened := make(chan error, 1)
	sb.running.Go(func() { opened <- a.open(stream, from, open) })
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	var err error
	select {
	case err = <-opened:
		if err != nil {
			cancel()
			return nil, err
		}
		return a, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-life.Done():
		err = context.Cause(life)
	case <-timeout.C:
		err = httpwait.NewSlowError("the daemon did not answer", startTimeout)
	}
	if !starts {
		cancel()
	}
	sb.background(life, func(ctx context.Context) {
		stop := context.AfterFunc(ctx, cancel)
		defer stop()
		if <-opened == nil {
			a.leave(ctx, starts)
			return
		}
		cancel()
	})
	return nil, err
}

// open sends the request, once, and reads the first message.
func (a *attachment) open(ctx context.Context, from outputFrom, open func(context.Context) (eventStream, error)) error {
	events, err := open(ctx)
	if err != nil {
		return err
	}
	a.events = events
	if !events.Receive() {
		_ = events.Close()
		if err := events.Err(); err != nil {
			return err
		}
		return ErrCommandLost
	}
	start := events.event().GetStart()
	if start.GetPid() == 0 {
		a.release()
		return errors.New("the daemon's first message does not report that the process runs")
	}
	a.pid = start.GetPid()
	if err := a.begin(from, events.ResponseHeader()); err != nil {
		a.release()
		return err
	}
	return nil
}

// follow reads the events until the process ends, and passes its output to output. If follow did
// not receive the end of the process, the error is the reason. The caller must then call leave,
// which ends the stream and, on request, the process.
func (a *attachment) follow(ctx context.Context, output func(*process.ProcessEvent_DataEvent) error) (*process.ProcessEvent_EndEvent, error) {
	received := a.receipts(ctx)
	defer received.end()
	for a.events.Receive() {
		event := a.events.event()
		if data := event.GetData(); data != nil && data.GetOutput() == nil {
			received.answer(a.offset.Load())
		} else if data != nil {
			offset := a.offset.Add(int64(len(data.GetStdout()) + len(data.GetStderr()) + len(data.GetPty())))
			if err := output(data); err != nil {
				return nil, err
			}
			received.report(offset)
		} else if end := event.GetEnd(); end != nil {
			a.conclude()
			received.finish()
			return end, nil
		}
	}
	err := a.events.Err()
	if connect.IsWireError(err) || errors.Is(err, ErrGone) {
		return nil, err
	}
	if err == nil {
		return nil, ErrCommandLost
	}
	return nil, fmt.Errorf("%w: %w", ErrCommandLost, err)
}

// conclude reads the rest of the stream, so that its connection can be reused. If the daemon
// continues to send messages, conclude ignores the rest of the stream.
func (a *attachment) conclude() {
	cut := time.AfterFunc(endGrace, a.cancel)
	defer cut.Stop()
	if a.events.Receive() {
		a.cancel()
	} else {
		a.outputHeld = a.events.ResponseTrailer().Get(protocol.TrailerOutputHeld) != ""
	}
	_ = a.events.Close()
	a.cancel()
}

// leave ends the stream of a process that has not ended. With kill it also ends the process. The
// caller passes a ctx that outlives the context of the call.
func (a *attachment) leave(ctx context.Context, kill bool) {
	a.release()
	if !kill {
		return
	}
	err := a.signal(ctx, process.Signal_SIGNAL_SIGKILL)
	isGone := errors.Is(err, ErrGone) || errors.Is(context.Cause(ctx), ErrGone) // with the sandbox
	if err != nil && connect.CodeOf(err) != connect.CodeNotFound && !isGone {
		a.sb.client.api.Logger().WarnContext(ctx, "a command that was given up may still run", "sandbox", a.sb.ID(), "pid", a.pid, "error", err)
	}
}

func (a *attachment) release() {
	a.cancel()
	_ = a.events.Close()
}

func (a *attachment) signal(ctx context.Context, signal process.Signal) error {
	return unary(ctx, a.user, a.sb.processes.SendSignal, &process.SendSignalRequest{Process: byPID(a.pid), Signal: signal})
}

// input sends all of data. wrap converts each piece of it to a message.
func (a *attachment) input(ctx context.Context, data []byte, wrap func([]byte) *process.ProcessInput) (sent int, err error) {
	for sent < len(data) {
		part := data[sent:min(sent+inputChunk, len(data))]
		err := unary(ctx, a.user, a.sb.processes.SendInput, &process.SendInputRequest{Process: byPID(a.pid), Input: wrap(part)})
		if err != nil {
			return sent, err
		}
		sent += len(part)
	}
	return sent, nil
}

func stdinInput(data []byte) *process.ProcessInput {
	return &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: data}}
}

func ptyInput(data []byte) *process.ProcessInput {
	return &process.ProcessInput{Input: &process.ProcessInput_Pty{Pty: data}}
}

// unary makes a call with an empty answer.
func unary[Request, Response any](ctx context.Context, user string, call func(context.Context, *connect.Request[Request]) (*connect.Response[Response], error), msg *Request) error {
	request := connect.NewRequest(msg)
	asUser(request.Header(), user)
	_, err := call(ctx, request)
	return err
}

func byPID(pid uint32) *process.ProcessSelector {
	return &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: pid}}
}

// lifetime opens the call during which a handle follows a process. It returns the context life of
// that call. life ends when end or abandon is called, and after timeout if timeout is not 0. When
// the sandbox's handle is closed, life ends with [ErrClosed]. life has the values of ctx, but
// does not end when ctx ends.
func (sb *Sandbox) lifetime(ctx context.Context, timeout time.Duration) (life context.Context, abandon context.CancelCauseFunc, end func(), err error) {
	life, done, err := sb.begin(context.WithoutCancel(ctx))
	if err != nil {
		return nil, nil, nil, err
	}
	life, release := limited(life, timeout)
	life, abandon = context.WithCancelCause(life)
	return life, abandon, func() { abandon(nil); release(); done() }, nil
}

// limited limits the life of a process.
func limited(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, timeout, fmt.Errorf("it ran longer than its timeout of %v and was killed: %w", timeout, context.DeadlineExceeded))
}

// wirePID converts a pid to the type that the daemon uses.
func wirePID(pid int) (uint32, error) {
	if pid <= 0 || int64(pid) > math.MaxUint32 {
		return 0, fmt.Errorf("%d is not the pid of a process", pid)
	}
	return uint32(pid), nil
}

// wireSignals contains the signals that the daemon supports.
var wireSignals = map[syscall.Signal]process.Signal{
	syscall.SIGTERM: process.Signal_SIGNAL_SIGTERM,
	syscall.SIGKILL: process.Signal_SIGNAL_SIGKILL,
}

// wireSignal converts a signal to the type that the daemon uses.
func wireSignal(signal os.Signal) (process.Signal, error) {
	number, _ := signal.(syscall.Signal)
	wire, ok := wireSignals[number]
	if !ok {
		return 0, fmt.Errorf("%v is not supported: SIGTERM and SIGKILL are all the service can send", signal)
	}
	return wire, nil
}

// asUser sets the user of a request by HTTP basic authentication with an empty password, because
// the daemon ignores the password.
func asUser(h http.Header, user string) {
	if user != "" {
		r := http.Request{Header: h}
		r.SetBasicAuth(user, "")
	}
}

func newProcessClient(sb *Sandbox) processconnect.ProcessClient {
	return processconnect.NewProcessClient(rpcClient{portClient{sb, protocol.PortEnvd}}, sb.baseURL(protocol.PortEnvd),
		connect.WithInterceptors(sb.client.interceptors...), connect.WithReadMaxBytes(maxEvent), plain, boundproto.Limit(maxProcessMessages))
}

// olderThan reports whether a version of the daemon is older than the given one. A version that
// cannot be parsed counts as new.
func olderThan(version string, major, minor, patch int) bool {
	var a, b, c int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &a, &b, &c); n < 3 {
		return false
	}
	if a != major {
		return a < major
	}
	if b != minor {
		return b < minor
	}
	return c < patch
}
