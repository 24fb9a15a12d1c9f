package kernelconn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// resumeTime limits the time for reconnecting after a connection was cut during an
// execution.
const resumeTime = 5 * time.Second

// wakeTime is used instead of resumeTime for a sandbox that was paused. The service takes up to a
// minute to resume such a sandbox.
const wakeTime = 70 * time.Second

// resume continues an execution over another websocket. If no websocket can be opened, the
// execution is over. But if ctx has ended, the caller has only given up, and the execution is not
// over.
func (k *Kernel) resume(ctx context.Context, e *execution) error {
	err := k.reconnect(ctx, e)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && !e.runsCode:
		return e.dismissed(ctx)
	case ctx.Err() != nil:
		e.messages <- nil // the channel has space: nothing else writes now
		return k.interrupted(ctx, e)
	}
	e.over = true
	k.primed.Store(false)
	return err
}

// reconnect opens another websocket in place of the websocket that was cut during an execution.
// Then it sends a barrier request, which enters the same queue as the request of the execution.
// When the kernel answers the barrier, it has finished the execution.
func (k *Kernel) reconnect(ctx context.Context, e *execution) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(k.life, cancel)()
	if !e.busy && k.refused() {
		return errTooBig
	}
	k.hangUp()
	limit := resumeTime
	paused := k.kernels.options.Server.Settle(ctx, k.made)
	if paused {
		limit = wakeTime
	}
	ctx, cancelDial := context.WithTimeout(ctx, limit)
	defer cancelDial()
	for wait := 50 * time.Millisecond; ; wait *= 2 {
		conn, err := k.kernels.dial(ctx, k.id, k.session)
		if err == nil {
			return k.continueOver(conn, e, paused)
		}
		if refused, ok := errors.AsType[*jupyter.DialError](err); ok && refused.StatusCode == http.StatusNotFound {
			return fmt.Errorf("%w: the sandbox no longer has it", ErrDied)
		}
		if k.life.Err() != nil || k.kernels.options.Server.Gone(err) {
			return fmt.Errorf("%w: %w", ErrLost, err)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w: it could not be made again: %w", ErrLost, err)
		}
	}
}

// continueOver continues an execution over another websocket.
func (k *Kernel) continueOver(conn *jupyter.Conn, e *execution, paused bool) error {
	k.mu.Lock()
	if k.life.Err() != nil {
		k.mu.Unlock()
		_ = conn.Close()
		return ErrLost
	}
	header := jupyter.NewHeader("kernel_info_request", k.session, username)
	k.conn, k.made, k.broken, e.resumed, e.paused = conn, time.Now(), false, true, paused
	k.seen.resume()
	answersInOrder := k.language == DefaultLanguage
	if answersInOrder {
		e.barrier = header.MsgID
	}
	k.reading.Go(func() { k.receive(conn) })
	k.mu.Unlock()
	if !answersInOrder {
		return nil // kernels of some languages answer while code runs
	}
	// If this fails, receive notices.
	_ = conn.Send(&jupyter.Message{Channel: jupyter.Shell, Header: header, Content: json.RawMessage("{}")})
	return nil
}

// complete reports whether all messages that the kernel sent during an execution have arrived.
func (k *Kernel) complete(e *execution) bool {
	k.mu.Lock()
	resumed := e.resumed
	k.mu.Unlock()
	return !resumed || e.busy && k.nothingMissed()
}

// nothingMissed reports whether the numbers of the kernel's messages prove that all messages since
// the last request was sent have arrived.
func (k *Kernel) nothingMissed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.seen.complete()
}
