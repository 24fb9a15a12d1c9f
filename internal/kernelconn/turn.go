package kernelconn

import (
	"context"
	"fmt"
)

// takeTurn waits until a call may use the kernel. The call then holds the turn until
// settle gives it back. queued may be nil.
func (k *Kernel) takeTurn(ctx context.Context, queued func(int) error) (err error) {
	for _, name := range k.kernels.names(k.id) {
		if err := CheckNotWaiting(ctx, k.kernels.options.SandboxID, name); err != nil {
			return err
		}
	}
	ahead := k.inTurn.Add(1) - 1
	if err := k.waitForTurn(ctx, int(ahead), queued); err != nil {
		k.inTurn.Add(-1)
		return err
	}
	defer func() {
		if err != nil {
			k.release()
		}
	}()
	if err := k.kernels.waitAtGate(ctx, k.id); err != nil {
		return fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	k.mu.Lock()
	spent := k.spent
	k.mu.Unlock()
	if spent {
		<-k.done // until then other calls would get this connection
		return errStale
	}
	return nil
}

// beginUse is called by the holder of the turn before the user's code may set variables.
func (k *Kernel) beginUse(ignoreLoss bool) error {
	// An earlier call that was given up may have ended the kernel while this call
	// waited.
	if lost := k.kernels.Loss(k.id); lost != nil && !ignoreLoss {
		return lost
	}
	k.mu.Lock()
	k.used = true
	k.mu.Unlock()
	return nil
}

// waitForTurn waits until no other call holds the turn.
func (k *Kernel) waitForTurn(ctx context.Context, ahead int, queued func(int) error) error {
	select {
	case k.turn <- struct{}{}:
		return nil
	default:
	}
	if queued != nil {
		if err := queued(max(ahead, 1)); err != nil {
			return fmt.Errorf("%w: %w", ErrNotSent, err)
		}
	}
	select {
	case k.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w, for other code of its context runs: %w", ErrNotSent, context.Cause(ctx))
	case <-k.done:
		return errStale
	}
}

// settle gives the turn back when no trace of the call is left in the kernel, and no interrupt is
// on its way to the kernel.
func (k *Kernel) settle(ctx context.Context, envs bool) {
	e := k.unfinished()
	if e == nil && !envs && k.settled() {
		k.release()
		return
	}
	k.kernels.options.Background(ctx, func(ctx context.Context) {
		defer k.release()
		if e != nil {
			k.stop(ctx, e)
		}
		if !k.settled() {
			<-k.interruptSent
		}
		if !envs {
			return
		}
		if _, err := k.once(ctx, silently(restoreEnvs), Handler{}); err != nil {
			if e := k.unfinished(); e != nil {
				k.stop(ctx, e)
			}
		}
	})
}

func (k *Kernel) release() {
	k.inTurn.Add(-1)
	<-k.turn
}
