package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// OutputLostError reports output of a process that its sandbox no longer keeps. The local cloud
// keeps at least the newest megabyte of each process's output, and less if the kept output of a
// sandbox would exceed 16 MiB. It keeps the output of an ended process for a minute.
type OutputLostError struct {
	From    int64 // the offset of the first missing byte
	Missing int64 // the number of missing bytes
}

func (e *OutputLostError) Error() string {
	return fmt.Sprintf("%d bytes of output from byte %d on are no longer kept", e.Missing, e.From)
}

// outputFrom is the place in the output of a process at which a stream begins.
type outputFrom struct {
	now    bool   // the stream begins with the output that the process writes from now on
	offset int64  // if now is false: the offset of the first byte
	of     string // the id of the process; empty: the selector of the request selects the process
	stream string // the stream that is cut off; empty: there is none
}

func (f outputFrom) set(h http.Header) {
	value := protocol.OutputFromNow
	if !f.now {
		value = strconv.FormatInt(f.offset, 10)
	}
	h.Set(protocol.HeaderOutputFrom, value)
	if f.of != "" {
		h.Set(protocol.HeaderOutputOf, f.of)
	}
	if f.stream != "" {
		h.Set(protocol.HeaderOutputStream, f.stream)
	}
}

// connectFrom is like connectProcess, but the stream begins at the offset that a caller has requested. A
// nil offset means the output from now on. name is the name of the parameter with the offset.
func (sb *Sandbox) connectFrom(ctx, life context.Context, user string, selector *process.ProcessSelector, name string, offset *int64) (*attachment, error) {
	if offset != nil && *offset < 0 {
		return nil, fmt.Errorf("%w: %s is negative: %d", api.ErrInvalidArgument, name, *offset)
	}
	from := outputFrom{now: true}
	if offset != nil {
		from = outputFrom{offset: *offset}
	}
	a, err := sb.connectProcess(ctx, life, user, selector, from)
	if err == nil && offset != nil && !a.resumable {
		a.release()
		return nil, fmt.Errorf("%w: %s: the sandbox's daemon keeps no output", errors.ErrUnsupported, name)
	}
	return a, err
}

// begin records the offset at which the stream begins. It returns an error if this is not the
// requested offset. A daemon that does not keep output does not report an offset.
func (a *attachment) begin(from outputFrom, header http.Header) error {
	value := header.Get(protocol.HeaderOutputFrom)
	if value == "" {
		return nil
	}
	offset, err := strconv.ParseInt(value, 10, 64)
	id := header.Get(protocol.HeaderOutputOf)
	switch {
	case err != nil, offset < 0, offset > math.MaxInt64/2: // sums with it must not overflow
		return fmt.Errorf("the daemon's answer begins at byte %q of the output, which is not a number of bytes", clip.Text(value, 32))
	case id == "" || from.of != "" && id != from.of:
		return fmt.Errorf("the daemon answered with the output of %q, not of %q", clip.Text(id, 64), from.of)
	case !from.now && offset < from.offset:
		return fmt.Errorf("the daemon's answer begins at byte %d of the output, before the requested byte %d", offset, from.offset)
	case !from.now && offset > from.offset:
		return &OutputLostError{From: from.offset, Missing: offset - from.offset}
	}
	a.resumable, a.id, a.streamID = true, id, header.Get(protocol.HeaderOutputStream)
	a.offset.Store(offset)
	return nil
}

// wasCut reports whether err means that the answer to a request was cut off, so that the service may
// have received the request.
func wasCut(err error) bool {
	if connect.IsWireError(err) || errors.Is(err, ErrGone) {
		return false
	}
	if broken, ok := errors.AsType[*net.OpError](err); ok && broken.Op == "dial" {
		return false
	}
	for _, cut := range []error{ErrCommandLost, io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, cut) {
			return true
		}
	}
	// The head of the answer came in part. Package net/http has no type for this error.
	return err != nil && strings.Contains(err.Error(), "transport connection broken")
}

// findTimeout limits the time of the search for a process whose start was not answered.
const findTimeout = 10 * time.Second

// findStarted connects to a process whose start was not answered. The process need not exist.
func (sb *Sandbox) findStarted(ctx, life context.Context, user string, from outputFrom) (*attachment, error) {
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	selector := &process.ProcessSelector{Selector: &process.ProcessSelector_Tag{Tag: from.of}}
	var found *attachment
	err := again(ctx, func() (err error) {
		found, err = sb.attach(ctx, life, user, true, from, sb.opensConnect(user, selector, from))
		return err
	})
	return found, err
}

// again calls connect until it succeeds, fails for good or ctx ends. It pauses between the calls.
func again(ctx context.Context, connect func() error) error {
	for pause := rejoinPause; ; pause = min(2*pause, maxRejoinPause) {
		err := connect()
		if err == nil || isFinal(err) {
			return err
		}
		if !sleep(ctx, pause) {
			return err
		}
	}
}

// isFinal reports whether a further attempt to connect would have the same error.
func isFinal(err error) bool {
	if _, lost := errors.AsType[*OutputLostError](err); lost || errors.Is(err, ErrGone) || errors.Is(err, errReplaced) || errors.Is(err, errForgets) {
		return true
	}
	answer, ok := errors.AsType[*connect.Error](err)
	return ok && connect.IsWireError(answer) && answer.Code() != connect.CodeResourceExhausted
}

// receipts reports to the daemon how much output of a stream has been received. The daemon keeps
// the rest, for another stream.
type receipts struct {
	due     int64          // the offset at which the output is reported next
	steps   latest         // for every [protocol.OutputStep] bytes
	answers latest         // for requests of the daemon
	over    chan struct{}  // closed by finish
	sending sync.WaitGroup // the goroutines
	cancel  func()         // ends the reports in the middle of a request
}

// latest passes offsets to a goroutine. The goroutine receives only the newest of them.
type latest struct {
	offset atomic.Int64
	wake   chan struct{}
	start  func()          // starts the goroutine, once
	over   <-chan struct{} // closed when no further offset is wanted
}

func (l *latest) pass(offset int64) {
	l.offset.Store(offset)
	l.start()
	select {
	case l.wake <- struct{}{}:
	default: // the goroutine reads the offset afterwards
	}
}

// next waits for an offset. It returns false if no further offset is wanted.
func (l *latest) next(ctx context.Context) (offset int64, ok bool) {
	select {
	case <-l.wake:
		return l.offset.Load(), ctx.Err() == nil
	case <-l.over:
	case <-ctx.Done():
	}
	return 0, false
}

// reporter sends reports to the daemon.
type reporter interface {
	// report reports that the output before an offset has been received.
	report(ctx context.Context, offset int64) error
	// reportSteps does the same, and opens a request for more reports.
	reportSteps(ctx context.Context, offset int64) (steps, error)
}

// steps is an open request. Each call of step reports [protocol.OutputStep] further bytes, without an answer.
type steps interface {
	step() error
	close()
}

// receipts returns the receipts for the stream, beginning with its next byte. The caller must call end.
func (a *attachment) receipts(ctx context.Context) *receipts {
	if !a.resumable {
		return &receipts{due: math.MaxInt64, over: make(chan struct{}), cancel: func() {}}
	}
	return newReceipts(ctx, a.offset.Load(), a)
}

func newReceipts(ctx context.Context, from int64, to reporter) *receipts {
	ctx, cancel := context.WithCancel(ctx)
	r := &receipts{due: from + protocol.OutputStep, over: make(chan struct{}), cancel: cancel}
	for l, send := range map[*latest]func(){
		&r.steps:   func() { r.sendSteps(ctx, to) },
		&r.answers: func() { r.sendAnswers(ctx, from, to) },
	} {
		l.wake, l.over = make(chan struct{}, 1), r.over
		l.start = sync.OnceFunc(func() { r.sending.Go(send) })
	}
	return r
}

// end ends the reports at once, and waits for their end.
func (r *receipts) end() {
	r.cancel()
	r.sending.Wait()
}

// finish ends the reports at the end of the process. It ends the request of sendSteps in order, so that
// its connection can be reused.
func (r *receipts) finish() {
	close(r.over)
	cut := time.AfterFunc(endGrace, r.cancel)
	defer cut.Stop()
	r.sending.Wait()
}

// report notes that the output before an offset has been received. It requests a report for every
// [protocol.OutputStep] bytes.
func (r *receipts) report(offset int64) {
	if offset >= r.due {
		r.due = offset + protocol.OutputStep
		r.steps.pass(offset)
	}
}

// answer requests a report that does not depend on the request of sendSteps, because a proxy may
// hold back the messages of such a request.
func (r *receipts) answer(offset int64) {
	if r.due != math.MaxInt64 {
		r.answers.pass(offset)
	}
}

// sendSteps sends the reports for every [protocol.OutputStep] bytes in one request, because a request
// for each of them would take as much processor time as a megabyte of output, in this process, the
// service and the daemon. If the request fails, the next report opens another one.
func (r *receipts) sendSteps(ctx context.Context, to reporter) {
	var open steps
	for reported := int64(0); ; {
		offset, ok := r.steps.next(ctx)
		if !ok {
			break
		}
		var err error
		if open == nil {
			reported = offset
			open, err = to.reportSteps(ctx, offset)
		}
		for ; err == nil && offset-reported >= protocol.OutputStep; reported += protocol.OutputStep {
			err = open.step()
		}
		if err != nil {
			open.close()
			open = nil
		}
	}
	if open != nil {
		open.close()
	}
}

// sendAnswers sends the reports that the daemon has requested. The process waits for them.
func (r *receipts) sendAnswers(ctx context.Context, reported int64, to reporter) {
	for {
		offset, ok := r.answers.next(ctx)
		if !ok {
			return
		}
		if offset <= reported {
			continue
		}
		_ = again(ctx, func() error {
			reported = r.answers.offset.Load()
			return to.report(ctx, reported)
		})
	}
}

func (a *attachment) receivedUntil(offset int64, header http.Header) {
	outputFrom{offset: offset, of: a.id, stream: a.streamID}.set(header)
	asUser(header, a.user)
}

func (a *attachment) report(ctx context.Context, offset int64) error {
	request := connect.NewRequest(&process.UpdateRequest{Process: byPID(a.pid)})
	a.receivedUntil(offset, request.Header())
	_, err := a.sb.processes.Update(ctx, request)
	return err
}

func (a *attachment) reportSteps(ctx context.Context, offset int64) (steps, error) {
	stream := a.sb.processes.StreamInput(ctx)
	a.receivedUntil(offset, stream.RequestHeader())
	return stepStream{stream}, stream.Send(&process.StreamInputRequest{Event: &process.StreamInputRequest_Start{
		Start: &process.StreamInputRequest_StartEvent{Process: byPID(a.pid)},
	}})
}

// stepStream is an open StreamInput request with reports.
type stepStream struct {
	*connect.ClientStreamForClient[process.StreamInputRequest, process.StreamInputResponse]
}

func (s stepStream) step() error {
	return s.Send(&process.StreamInputRequest{Event: &process.StreamInputRequest_Keepalive{
		Keepalive: &process.StreamInputRequest_KeepAlive{},
	}})
}

func (s stepStream) close() { _, _ = s.CloseAndReceive() }
