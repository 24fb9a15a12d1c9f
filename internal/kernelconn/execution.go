package kernelconn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/e2bctl/e2bctl/internal/boundjson"
	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/jupyter"
)

const (
	// otherHalf bounds the time between a reply and the idle status. The two messages may arrive in
	// either order, because they use different sockets behind the server.
	otherHalf = 10 * time.Second
	// causeTimeout bounds the wait for the message in which a dead kernel gives the reason for its
	// end.
	causeTimeout = 250 * time.Millisecond
	// maxSilences bounds the number of silences in a row after a cut, for code that may ask for
	// input. The bound is necessary because the cut may have lost the code's request for input. The
	// code would then wait forever.
	maxSilences = 10
	// maxReplyDepth limits the nesting of values in a reply.
	maxReplyDepth = 16
)

// execution is a request in progress. It may be a request that runs no code.
type execution struct {
	id       string
	answer   string // the type of the reply
	runsCode bool   // the request runs the user's code
	sent     time.Time
	messages chan *jupyter.Message // a nil message means that the websocket has ended
	left     chan struct{}         // closed when messages are no longer read

	// resumed means that the request was sent over an earlier websocket than the current one. barrier
	// is the id of the barrier request, which is sent after the websocket was cut. If no barrier
	// request was sent, barrier is empty. Kernel.mu guards both fields.
	resumed bool
	barrier string
	paused  bool // a pause of the sandbox cut the websocket over which the request was sent

	unsent bool // the request never reached the kernel, because a pause had already cut the websocket

	content             json.RawMessage // the content of the reply
	reply               jupyter.ExecuteReply
	busy, ran           bool // the kernel works on the request; the code has begun to run
	replied, idle, over bool
	passedShell         bool // the barrier on the shell channel was answered
	passedIOPub         bool
	suspected           bool // the server has already reported the kernel as idle
	silences            int  // the number of silences in a row, since the last cut
	interrupting        atomic.Bool
	explained           bool // the reason for which the kernel ended is known

	asked *jupyter.Message // the last question of the code, until it is answered

	interrupts    int // the number of interrupts that were sent
	interruptedAt time.Time
}

// concerns reports whether the execution must handle a message. It must handle the messages about
// the execution itself, messages about the end of its kernel, and the answers to its barrier. It
// must also handle requests for input from threads that earlier code left behind.
func (e *execution) concerns(m *jupyter.Message) bool {
	return m.Parent.MsgID == e.id || e.barrier != "" && m.Parent.MsgID == e.barrier || fateOf(m).deadly() || asks(m)
}

// asks reports whether a message is a request for input.
func asks(m *jupyter.Message) bool { return m.Header.MsgType == "input_request" }

// give passes a message to the reader of the execution. It returns false if messages are no longer
// read.
func (e *execution) give(m *jupyter.Message) bool {
	select {
	case e.messages <- m:
		return true
	case <-e.left:
		return false
	}
}

// dropped reports whether the code did not run, and may be sent again: the kernel
// answered without running it, or never received it.
func (e *execution) dropped() bool {
	return e.unsent || (e.reply.Status == "aborted" || e.reply.Status == "abort") && !e.ran
}

// follow reads the messages of an execution until the execution is over, ctx ends, the
// limit of the execution is reached or the handler fails.
func (k *Kernel) follow(ctx context.Context, e *execution, h Handler) error {
	caller := ctx
	ctx, unbind := h.Within(caller)
	defer unbind()
	questions := newQuestions(h.Input)
	defer questions.drop()
	quiet := time.NewTicker(k.kernels.Timings.Silence)
	defer quiet.Stop()
	var heard bool
	var half, again <-chan time.Time
	var given *inputAnswer // the answer to the last question
	for {
		select {
		case <-ctx.Done():
			return k.cut(caller, ctx, e, h)
		case <-half:
			return e.lost("the kernel did not say that it is done")
		case <-quiet.C:
			if err := k.doubt(ctx, e, heard); err != nil {
				return err
			}
			if e.silences > maxSilences && h.Input != nil {
				return fmt.Errorf("%w: the code has said nothing since it was cut, and may wait for an answer to a question that did not come", ErrLost)
			}
			heard = false
		case a := <-questions.answers:
			if ctx.Err() != nil {
				return k.cut(caller, ctx, e, h) // the handler may have ended only because of ctx
			}
			if questions.answered(ctx) {
				continue // the code no longer waits for this answer
			}
			if err := k.answer(a); err != nil {
				return err
			}
			given, e.asked = &a, nil
		case <-again:
			if err := k.answer(*given); err != nil {
				return err
			}
		case m := <-e.messages:
			heard = true
			if m == nil {
				if err := k.resume(ctx, e); err != nil {
					return err
				}
				if given != nil {
					again = time.After(k.kernels.Timings.AnswerAgain)
				}
				continue
			}
			if m.Parent.MsgID == e.id && (m.Channel == jupyter.Stdin || m.Channel == jupyter.Shell) {
				given, again = nil, nil // the answer has arrived
			}
			if err := k.note(e, m); err != nil {
				k.primed.Store(false)
				if errors.Is(err, ErrDied) {
					err = e.withCause(err)
				}
				return err
			}
			if asks(m) {
				e.asked = m
			}
			if m.Parent.MsgID == e.id || asks(m) {
				if err := k.tell(ctx, m, h, questions); err != nil {
					return err
				}
			}
			if e.over {
				if !e.unsent && !k.complete(e) {
					return fmt.Errorf("%w: the code ended (status %q) while it was cut", ErrLost, clip.Text(e.reply.Status, 16))
				}
				return nil
			}
			if half == nil && e.replied != e.idle {
				half = time.After(cmp.Or(h.patience, otherHalf))
			}
		}
	}
}

// tell passes a message of the kernel to the handler. tell also passes a request for input to q.
func (k *Kernel) tell(ctx context.Context, m *jupyter.Message, h Handler, q *questions) error {
	if h.Message != nil && (m.Channel == jupyter.IOPub || asks(m)) {
		if err := h.Message(m); err != nil {
			return err
		}
	}
	if asks(m) {
		q.ask(ctx, m)
	}
	return nil
}

// interrupted returns the error of an execution that is given up.
func (k *Kernel) interrupted(ctx context.Context, e *execution) *InterruptedError {
	err := &InterruptedError{Context: k.id, Cause: context.Cause(ctx)}
	// Code that waits for another client's code does not run. After a cut, code may run
	// without a report of its start.
	if e.busy || e.resumed {
		err.Ran = time.Since(e.sent)
	}
	err.Starting = err.Ran == 0 && !k.heard.Load()
	return err
}

// dismissed marks an execution as over because its caller no longer waits. It returns the error for
// the caller. The request must be one that runs no code.
func (e *execution) dismissed(ctx context.Context) error {
	e.over = true
	return fmt.Errorf("the kernel has not answered: %w", context.Cause(ctx))
}

// lost marks an execution as over because its outcome is unknown. It returns the error, with the
// reason why.
func (e *execution) lost(why string) error {
	e.over = true
	return fmt.Errorf("%w: %s", ErrLost, why)
}

// note updates the execution from a message. The execution is over when both the reply and the idle
// status have arrived, in any order.
func (k *Kernel) note(e *execution, m *jupyter.Message) error {
	var status jupyter.StatusContent
	if m.Header.MsgType == "status" {
		status = m.Status()
	}
	state := status.ExecutionState
	if fate := fateOf(m); fate.deadly() {
		e.over, e.explained = true, fate.byClient
		return died(fate.reason)
	}
	if m.Parent.MsgID != e.id {
		return k.noteBarrier(e, m, state)
	}
	switch m.Header.MsgType {
	case e.answer:
		if err := boundjson.Unmarshal(m.Content, &e.reply, jupyter.MaxMembers, maxReplyDepth); err != nil {
			return e.lost(fmt.Sprintf("its reply is malformed: %v", err))
		}
		e.replied, e.content = true, m.Content
	case "execute_input", "stream", "execute_result", "display_data", "error":
		e.ran = true
	case "status":
		e.busy = e.busy || state == "busy"
		e.idle = e.idle || state == "idle"
	}
	e.over = e.replied && e.idle
	return nil
}

// noteBarrier handles an answer to the barrier. The barrier is a request that was sent after the
// request of the execution. On each channel, the kernel answers requests in order. So a message of
// the execution is lost if it did not arrive before the barrier's answer on the same channel. Then
// noteBarrier returns an error, with one exception. If the kernel has sent nothing about the
// execution, and no message is missing, the kernel never received the request: the sandbox was
// paused before this program noticed the pause. Then the execution counts as not sent.
func (k *Kernel) noteBarrier(e *execution, m *jupyter.Message, state string) error {
	switch {
	case m.Header.MsgType == "kernel_info_reply":
		e.passedShell = true
	case state == "idle":
		e.passedIOPub = true
	}
	switch silent := e.paused && !e.busy && !e.ran && !e.replied; {
	case silent && (!e.passedShell || !e.passedIOPub):
		return nil
	case silent && k.nothingMissed():
		e.unsent, e.over = true, true
		return nil
	case e.passedShell && !e.replied || e.passedIOPub && !e.idle:
		return e.lost("what the kernel said at the end was cut off")
	}
	return nil
}

// doubt is called after each period of Timings.Silence. If no message was heard in this period,
// doubt asks the server for the state of the kernel. The pings have shown that the websocket is
// alive.
func (k *Kernel) doubt(ctx context.Context, e *execution, heard bool) error {
	if heard {
		e.suspected, e.silences = false, 0
		return nil
	}
	if e.resumed {
		e.silences++
	}
	switch state := k.state(ctx); {
	case state == "dead":
		e.over = true
		return ErrDied
	case state != "idle":
		e.suspected = false
		return nil
	case !e.suspected:
		// Its last messages may still be on their way.
		e.suspected = true
		return nil
	}
	return e.lost("the server says that the kernel is idle, and its answer did not come")
}
