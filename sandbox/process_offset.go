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

const (
	// receiptStep is the number of received bytes that are reported at once. A report costs about as much
	// processor time as a megabyte of output, in this process, the service and the daemon.
	receiptStep = 4 * protocol.OutputStep
	// receiptPause is the time after which fewer bytes are reported, because a daemon that is short of
	// memory lets the process wait for a report of [protocol.OutputStep] bytes.
	receiptPause = 32 * time.Millisecond
)

// receipts reports to the daemon how much output of a stream has been received. The daemon keeps
// the rest, for another stream.
type receipts struct {
	due    int64 // the offset at which the output is noted next
	newest atomic.Int64
	wake   chan struct{} // requests a report of newest
	start  func()        // starts the reports, once
	end    func()        // ends the reports, and waits for their end
}

// receipts returns the receipts for the stream, beginning with its next byte. The caller must call end.
func (a *attachment) receipts(ctx context.Context) *receipts {
	if !a.resumable {
		return &receipts{due: math.MaxInt64, end: func() {}}
	}
	return newReceipts(ctx, a.offset.Load(), a.report)
}

func newReceipts(ctx context.Context, from int64, send func(ctx context.Context, offset int64) error) *receipts {
	ctx, cancel := context.WithCancel(ctx)
	var sending sync.WaitGroup
	r := &receipts{due: from + protocol.OutputStep, wake: make(chan struct{}, 1), end: func() { cancel(); sending.Wait() }}
	r.start = sync.OnceFunc(func() {
		sending.Go(func() {
			for reported := from; r.collect(ctx, reported); {
				_ = again(ctx, func() error { // without a report, the process waits
					reported = r.newest.Load()
					return send(ctx, reported)
				})
			}
		})
	})
	return r
}

// report notes that the output before an offset has been received. It requests a report for every
// [protocol.OutputStep] bytes. One report is sent at a time.
func (r *receipts) report(offset int64) {
	if offset < r.due {
		return
	}
	r.due = offset + protocol.OutputStep
	r.newest.Store(offset)
	r.start()
	select {
	case r.wake <- struct{}{}:
	default: // collect reads newest afterwards
	}
}

// collect waits for output after the reported offset. Then it waits until receiptStep bytes of it have
// been received, but no longer than receiptPause. It returns false if ctx ends first.
func (r *receipts) collect(ctx context.Context, reported int64) bool {
	var pause <-chan time.Time
	for {
		switch unreported := r.newest.Load() - reported; {
		case unreported >= receiptStep:
			return ctx.Err() == nil
		case unreported > 0 && pause == nil:
			timer := time.NewTimer(receiptPause)
			defer timer.Stop()
			pause = timer.C
		}
		select {
		case <-r.wake:
		case <-pause:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

func (a *attachment) report(ctx context.Context, offset int64) error {
	request := connect.NewRequest(&process.UpdateRequest{Process: byPID(a.pid)})
	outputFrom{offset: offset, of: a.id, stream: a.streamID}.set(request.Header())
	asUser(request.Header(), a.user)
	_, err := a.sb.processes.Update(ctx, request)
	return err
}
