//go:build linux

package envd

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

var (
	errInputToTerminal = errors.New("tty assigned to process: input should be written to the pty, not to stdin")
	errNoTerminal      = errors.New("tty not assigned to process: input should be written to stdin, not to the pty")
	errCloseTerminal   = errors.New("cannot close stdin for PTY process: send Ctrl+D (0x04) instead")
)

// processService implements process.Process.
type processService struct{ server *Server }

// List lists the running processes, sorted by pid.
func (s *processService) List(context.Context, *connect.Request[process.ListRequest]) (*connect.Response[process.ListResponse], error) {
	return connect.NewResponse(&process.ListResponse{Processes: s.server.processes.list()}), nil
}

// Start starts a process and streams its output. The process outlives the stream, but
// not the deadline of the request.
func (s *processService) Start(ctx context.Context, req *connect.Request[process.StartRequest], stream *connect.ServerStream[process.StartResponse]) error {
	if s.server.refusal != nil {
		return s.server.refusal
	}
	l, err := s.launch(ctx, req.Msg)
	if err != nil {
		return err
	}
	offset, id, err := outputFrom(req.Header())
	if err != nil {
		return err
	}
	l.id = cmp.Or(id, rand.Text())
	r, first, err := s.server.processes.start(l)
	if err != nil {
		return startFailure(err)
	}
	if offset != nil {
		r.output.willReturn(first)
		noteFrom(stream.ResponseHeader(), r, first, 0)
	}
	return follow(ctx, r, first, req.Header(), stream.ResponseTrailer(), func(event *process.ProcessEvent) error {
		return stream.Send(&process.StartResponse{Event: event})
	})
}

// Connect streams the output that a running process writes from now on. For a process that
// ended recently, it sends the end. See [protocol.HeaderOutputFrom] for earlier output.
func (s *processService) Connect(ctx context.Context, req *connect.Request[process.ConnectRequest], stream *connect.ServerStream[process.ConnectResponse]) error {
	send := func(event *process.ProcessEvent) error {
		return stream.Send(&process.ConnectResponse{Event: event})
	}
	offset, id, err := outputFrom(req.Header())
	if err != nil {
		return err
	}
	if offset != nil {
		r, err := s.server.processes.findKept(req.Msg.GetProcess(), id)
		if err != nil {
			return selectFailure(err)
		}
		subscriber, begin, err := r.output.subscribeFrom(*offset, outputStream(req.Header()))
		if err != nil {
			return subscribeFailure(err)
		}
		noteFrom(stream.ResponseHeader(), r, subscriber, begin)
		return follow(ctx, r, subscriber, req.Header(), stream.ResponseTrailer(), send)
	}
	if r, err := s.server.processes.find(req.Msg.GetProcess()); err == nil {
		subscriber, err := r.output.subscribe()
		if err != nil {
			return subscribeFailure(err)
		}
		if subscriber != nil {
			return follow(ctx, r, subscriber, req.Header(), stream.ResponseTrailer(), send)
		}
	}
	old, err := s.server.processes.findRetired(req.Msg.GetProcess())
	if err != nil {
		return selectFailure(err)
	}
	if err := send(startEvent(old.pid)); err != nil {
		return err
	}
	noteHeld(stream.ResponseTrailer(), old.held)
	return send(endEvent(old.end))
}

// maxID bounds the bytes of a process's id that a client chooses.
const maxID = 64

// outputFrom returns the offset of the output that a client requests, and the id of its process. The
// offset is nil if the client does not use [protocol.HeaderOutputFrom].
func outputFrom(header http.Header) (offset *int64, id string, err error) {
	value := header.Get(protocol.HeaderOutputFrom)
	if value == "" {
		return nil, "", nil
	}
	if id = header.Get(protocol.HeaderOutputOf); len(id) > maxID {
		return nil, "", connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%s of %d bytes: the bound is %d", protocol.HeaderOutputOf, len(id), maxID))
	}
	n := int64(fromNow)
	if value != protocol.OutputFromNow {
		if n, err = strconv.ParseInt(value, 10, 64); err != nil || n < 0 {
			return nil, "", connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%s: %q is not the number of a byte", protocol.HeaderOutputFrom, bounded(value)))
		}
	}
	return &n, id, nil
}

// outputStream returns the number of a stream that a request names; 0 if it names none.
func outputStream(header http.Header) uint64 {
	n, _ := strconv.ParseUint(header.Get(protocol.HeaderOutputStream), 10, 64)
	return n
}

func noteFrom(header http.Header, r *running, s *subscriber, offset int64) {
	header.Set(protocol.HeaderOutputStream, strconv.FormatUint(s.stream, 10))
	header.Set(protocol.HeaderOutputFrom, strconv.FormatInt(offset, 10))
	header.Set(protocol.HeaderOutputOf, r.id)
}

func subscribeFailure(err error) error {
	if _, ok := errors.AsType[*futureError](err); ok {
		return connect.NewError(connect.CodeOutOfRange, err)
	}
	return connect.NewError(connect.CodeResourceExhausted, err)
}

func (s *processService) launch(ctx context.Context, msg *process.StartRequest) (*launch, error) {
	if n := len(msg.GetTag()); n > maxTag {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("tag of %d bytes: the bound is %d", n, maxTag))
	}
	user := s.server.userOf(ctx)
	env, err := s.server.environ(user, msg.GetProcess().GetEnvs())
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	dir, err := s.server.paths.resolve(msg.GetProcess().GetCwd(), user)
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	if info, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("cwd '%s' does not exist", dir))
	} else if err == nil && !info.IsDir() {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("cwd '%s' is not a directory", dir))
	}
	deadline, _ := ctx.Deadline()
	return &launch{
		config:   msg.GetProcess(),
		tag:      msg.Tag,
		user:     user,
		env:      env,
		dir:      dir,
		stdin:    msg.Stdin == nil || msg.GetStdin(),
		pty:      msg.GetPty(),
		terminal: func() (controller, tty *os.File, err error) { return s.server.terminal(ctx) },
		deadline: deadline,
	}, nil
}

func startFailure(err error) error {
	code := connect.CodeInternal
	switch {
	case errors.Is(err, errClosed):
		code = connect.CodeUnavailable
	case errors.Is(err, errTooManyProcesses), errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOMEM),
		errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		code = connect.CodeResourceExhausted
	case errors.Is(err, errNoShell):
		code = connect.CodeFailedPrecondition
	case errors.Is(err, fs.ErrPermission):
		code = connect.CodePermissionDenied
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.E2BIG):
		code = connect.CodeInvalidArgument
	}
	return connect.NewError(code, err)
}

func selectFailure(err error) error {
	if errors.Is(err, errNoSelector) {
		return connect.NewError(connect.CodeUnimplemented, err)
	}
	return connect.NewError(connect.CodeNotFound, err)
}

// follow sends the start event, the output and the end event of a process.
func follow(ctx context.Context, r *running, from *subscriber, header, trailer http.Header, send func(*process.ProcessEvent) error) error {
	defer r.output.unsubscribe(from)
	if err := send(startEvent(r.pid)); err != nil {
		return err
	}
	for of, data := from.replayed(); data != nil; of, data = from.replayed() {
		if err := send(outputEvent(of, data)); err != nil {
			return err
		}
	}
	from.dropReplay(r.output.kept.budget)
	interval := keepaliveInterval(header)
	keepalive := time.NewTimer(interval)
	defer keepalive.Stop()
	for {
		var err error
		silent := keepaliveEvent
		c := from.held
		if from.held = nil; c == nil {
			var more bool
			select {
			case c, more = <-from.chunks:
				if !more {
					return conclude(r, from, trailer, send)
				}
			case <-keepalive.C:
			case <-from.asked:
				silent = askEvent
			case <-from.gone:
				return connect.NewError(connect.CodeAborted, errReplaced)
			case <-ctx.Done():
				return contextFailure(ctx)
			}
		}
		if c == nil {
			err = send(silent())
		} else {
			c = from.gather(c)
			err = send(outputEvent(c.of, c.data))
			c.release()
		}
		if err != nil {
			return err
		}
		keepalive.Reset(interval)
	}
}

// conclude sends the exit status of the process, or the signal that ended it. If the deadline of
// the stream's own request ended the process, conclude returns the error of the deadline instead.
func conclude(r *running, from *subscriber, trailer http.Header, send func(*process.ProcessEvent) error) error {
	switch {
	case from.cut:
		return connect.NewError(connect.CodeResourceExhausted, errFellBehind)
	case r.hasExpired():
		return connect.NewError(connect.CodeDeadlineExceeded, context.DeadlineExceeded)
	}
	noteHeld(trailer, r.held)
	return send(endEvent(r.end))
}

// noteHeld records at the end of a stream that other processes still hold the process's output
// open. It uses a trailer, because the messages on the wire have no field for it. Clients of
// the service ignore the trailer.
func noteHeld(trailer http.Header, held bool) {
	if held {
		trailer.Set(protocol.TrailerOutputHeld, "true")
	}
}

func contextFailure(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return connect.NewError(connect.CodeDeadlineExceeded, ctx.Err())
	}
	return connect.NewError(connect.CodeCanceled, ctx.Err())
}

// keepaliveInterval returns the interval in the header. The header has the interval in seconds.
func keepaliveInterval(header http.Header) time.Duration {
	const fallback = 90 * time.Second
	const longest = 24 * 60 * 60
	seconds, err := strconv.Atoi(header.Get("Keepalive-Ping-Interval"))
	if err != nil || seconds <= 0 || seconds > longest {
		return fallback
	}
	return time.Duration(seconds) * time.Second
}

func startEvent(pid uint32) *process.ProcessEvent {
	return &process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: pid}}}
}

func keepaliveEvent() *process.ProcessEvent {
	return &process.ProcessEvent{Event: &process.ProcessEvent_Keepalive{Keepalive: &process.ProcessEvent_KeepAlive{}}}
}

// askEvent asks the client for a report of received output; see [protocol.HeaderOutputStream].
func askEvent() *process.ProcessEvent {
	return &process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: &process.ProcessEvent_DataEvent{}}}
}

func endEvent(end *process.ProcessEvent_EndEvent) *process.ProcessEvent {
	return &process.ProcessEvent{Event: &process.ProcessEvent_End{End: end}}
}

// received handles a report of the bytes that a client has received.
func (s *processService) received(header http.Header, selector *process.ProcessSelector, offset int64, id string) (*running, error) {
	r, err := s.server.processes.findKept(selector, id)
	if err != nil {
		return nil, selectFailure(err)
	}
	if err := r.output.receive(outputStream(header), offset); err != nil {
		return nil, subscribeFailure(err)
	}
	return r, nil
}

// receivedSteps handles a StreamInput request with such reports.
func (s *processService) receivedSteps(stream *connect.ClientStream[process.StreamInputRequest], offset int64, id string) (*connect.Response[process.StreamInputResponse], error) {
	var r *running
	for stream.Receive() {
		var err error
		switch event := stream.Msg().GetEvent().(type) {
		case *process.StreamInputRequest_Start:
			r, err = s.received(stream.RequestHeader(), event.Start.GetProcess(), offset, id)
		case *process.StreamInputRequest_Keepalive:
			if r == nil {
				return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("a report before the start event: no process is selected"))
			}
			offset += protocol.OutputStep
			if err = r.output.receive(outputStream(stream.RequestHeader()), offset); err != nil {
				err = subscribeFailure(err)
			}
		default:
			return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("input among reports of received output"))
		}
		if err != nil {
			return nil, err
		}
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	return connect.NewResponse(&process.StreamInputResponse{}), nil
}

// Update changes the size of a terminal. It also receives [protocol.HeaderOutputStream].
func (s *processService) Update(_ context.Context, req *connect.Request[process.UpdateRequest]) (*connect.Response[process.UpdateResponse], error) {
	if offset, id, err := outputFrom(req.Header()); err != nil {
		return nil, err
	} else if offset != nil {
		_, err := s.received(req.Header(), req.Msg.GetProcess(), *offset, id)
		return connect.NewResponse(&process.UpdateResponse{}), err
	}
	r, err := s.server.processes.find(req.Msg.GetProcess())
	if err != nil {
		return nil, selectFailure(err)
	}
	if req.Msg.GetPty() != nil {
		if r.terminal == nil {
			return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("error resizing tty: %w", errNoTerminal))
		}
		if err := resizeTerminal(r.terminal, req.Msg.GetPty().GetSize()); err != nil {
			return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("error resizing tty: %w", err))
		}
	}
	return connect.NewResponse(&process.UpdateResponse{}), nil
}

// SendInput writes to a process. It returns when the input was accepted.
func (s *processService) SendInput(ctx context.Context, req *connect.Request[process.SendInputRequest]) (*connect.Response[process.SendInputResponse], error) {
	r, err := s.server.processes.find(req.Msg.GetProcess())
	if err != nil {
		return nil, selectFailure(err)
	}
	if err := r.send(ctx, req.Msg.GetInput()); err != nil {
		return nil, err
	}
	return connect.NewResponse(&process.SendInputResponse{}), nil
}

// StreamInput writes to a process like SendInput, without a round trip for each message. The
// first message selects the process. It also receives [protocol.HeaderOutputStream].
func (s *processService) StreamInput(ctx context.Context, stream *connect.ClientStream[process.StreamInputRequest]) (*connect.Response[process.StreamInputResponse], error) {
	if offset, id, err := outputFrom(stream.RequestHeader()); err != nil {
		return nil, err
	} else if offset != nil {
		return s.receivedSteps(stream, *offset, id)
	}
	var r *running
	for stream.Receive() {
		switch event := stream.Msg().GetEvent().(type) {
		case *process.StreamInputRequest_Start:
			var err error
			if r, err = s.server.processes.find(event.Start.GetProcess()); err != nil {
				return nil, selectFailure(err)
			}
		case *process.StreamInputRequest_Data:
			if r == nil {
				return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("data before the start event: no process is selected"))
			}
			if err := r.send(ctx, event.Data.GetInput()); err != nil {
				return nil, err
			}
		case *process.StreamInputRequest_Keepalive:
		default:
			return nil, connect.NewError(connect.CodeUnimplemented, errNoSelector)
		}
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	return connect.NewResponse(&process.StreamInputResponse{}), nil
}

// send writes the input to the process. Its errors are Connect errors.
func (r *running) send(ctx context.Context, in *process.ProcessInput) error {
	var where string
	var err error
	switch in := in.GetInput().(type) {
	case *process.ProcessInput_Stdin:
		where = "stdin"
		switch {
		case r.terminal != nil:
			err = errInputToTerminal
		case r.stdin == nil:
			err = errStdinClosed
		default:
			err = r.stdin.write(ctx, in.Stdin)
		}
	case *process.ProcessInput_Pty:
		where = "tty"
		if err = errNoTerminal; r.terminal != nil {
			err = r.stdin.write(ctx, in.Pty)
		}
	default:
		return connect.NewError(connect.CodeUnimplemented, errNoSelector)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return contextFailure(ctx)
	case errors.Is(err, errInputFull):
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("error writing to %s: %w", where, err))
	}
	return connect.NewError(connect.CodeInternal, fmt.Errorf("error writing to %s: %w", where, err))
}

// SendSignal signals the process and its descendants. It answers a SIGKILL after the process
// has ended.
func (s *processService) SendSignal(ctx context.Context, req *connect.Request[process.SendSignalRequest]) (*connect.Response[process.SendSignalResponse], error) {
	r, err := s.server.processes.find(req.Msg.GetProcess())
	if err != nil {
		return nil, selectFailure(err)
	}
	switch req.Msg.GetSignal() {
	case process.Signal_SIGNAL_SIGKILL:
		err = s.server.processes.kill(ctx, r)
	case process.Signal_SIGNAL_SIGTERM:
		err = r.signal(unix.SIGTERM)
	default:
		return nil, connect.NewError(connect.CodeUnimplemented, fmt.Errorf("invalid signal: %s", req.Msg.GetSignal()))
	}
	if err != nil {
		return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("error sending signal: %w", err))
	}
	return connect.NewResponse(&process.SendSignalResponse{}), nil
}

// CloseStdin closes the standard input of a process. It is idempotent.
func (s *processService) CloseStdin(_ context.Context, req *connect.Request[process.CloseStdinRequest]) (*connect.Response[process.CloseStdinResponse], error) {
	r, err := s.server.processes.find(req.Msg.GetProcess())
	if err != nil {
		return nil, selectFailure(err)
	}
	if r.terminal != nil {
		return nil, connect.NewError(connect.CodeUnknown, fmt.Errorf("error closing stdin: %w", errCloseTerminal))
	}
	if r.stdin != nil {
		if err := r.stdin.close(); err != nil {
			return nil, connect.NewError(connect.CodeUnknown, fmt.Errorf("error closing stdin: %w", err))
		}
	}
	return connect.NewResponse(&process.CloseStdinResponse{}), nil
}
