package kernelconn

import (
	"context"
	"log/slog"
	"time"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// cut interrupts an execution because bounded, the Go context that limits it, has ended. Then cut
// receives the messages of the execution for a while. caller is the caller's own context. It may
// have ended, too, or may end meanwhile. If the execution is not over when cut returns, settle ends
// it later.
func (k *Kernel) cut(caller, bounded context.Context, e *execution, h Handler) error {
	if !e.runsCode {
		return e.dismissed(bounded)
	}
	err := k.interrupted(bounded, e)
	if !e.busy && !e.resumed {
		return err // another client's code runs
	}
	grace, gone := k.kernels.Timings.LimitGrace, caller.Done()
	if caller.Err() != nil {
		grace, gone = k.kernels.Timings.CancelGrace, nil
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	k.interruptAside(caller, e)
	interrupting := k.interruptSent
	for {
		select {
		case <-interrupting:
			interrupting = nil
			k.turnDown(e.asked)
			e.asked = nil
		case <-timer.C:
			return err
		case <-gone:
			return err
		case m := <-e.messages:
			if m == nil {
				e.messages <- nil // for stop; the channel has space, because nothing else writes now
				return err
			}
			if interrupting == nil {
				k.turnDown(m)
			} else if asks(m) {
				e.asked = m // answered after the interrupt: an answer could end the code before it
			}
			if k.note(e, m) != nil {
				k.primed.Store(false)
				k.noteDeath(m)
				return err
			}
			if m.Parent.MsgID == e.id && !asks(m) && k.tell(caller, m, h, nil) != nil {
				return err
			}
			if e.over {
				err.Ended = k.complete(e)
				return err
			}
		}
	}
}

// interruptAside sends the first interrupt in the background. settle waits for the server's answer
// to this interrupt, because a late interrupt would hit the next code.
func (k *Kernel) interruptAside(ctx context.Context, e *execution) {
	sent := make(chan struct{})
	e.interrupts, e.interruptedAt, k.interruptSent = 1, time.Now(), sent
	k.kernels.options.Background(ctx, func(ctx context.Context) {
		defer close(sent)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(k.life, cancel)()
		k.logStep(ctx, slog.LevelInfo, "interrupting code that was given up", k.Interrupt(ctx))
	})
}

// settled reports whether the server has answered the interrupt of interruptAside. It returns true
// if no such interrupt was sent.
func (k *Kernel) settled() bool {
	if k.interruptSent == nil {
		return true
	}
	select {
	case <-k.interruptSent:
		k.interruptSent = nil
		return true
	default:
		return false
	}
}

// noteDeath records that the variables are lost if m reports the death of the kernel. m is a
// message that came while code was being interrupted.
func (k *Kernel) noteDeath(m *jupyter.Message) {
	fate := fateOf(m)
	if !fate.deadly() {
		return
	}
	why := "its kernel died while its code was interrupted"
	if fate.reason != "" {
		why += ": " + clip.Text(fate.reason, 256)
	}
	k.kernels.lose(k.id, why)
	k.hangUp()
}
