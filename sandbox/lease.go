package sandbox

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/api"
)

// startLease renews the sandbox's life at half-time until stop is called. stop
// waits for a renewal in flight, so that none comes after it.
func (sb *Sandbox) startLease(lease time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var renewing sync.WaitGroup
	renewing.Go(func() {
		wait := lease / 2
		for {
			timer := time.NewTimer(wait)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
			err := sb.renew(ctx, lease)
			switch {
			case err == nil:
				wait = lease / 2
			case errors.Is(err, api.ErrNotFound):
				return // it is gone: whoever uses it next is told
			case ctx.Err() == nil:
				sb.client.api.Logger().WarnContext(ctx, "the sandbox's lease was not renewed", "sandbox", sb.ID(), "error", err)
				wait = lease / 20
			}
		}
	})
	return func() {
		cancel()
		renewing.Wait()
	}
}

// renew never shortens a life that another program has made longer, unless the
// service has no call for that.
func (sb *Sandbox) renew(ctx context.Context, lease time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, lease/4)
	defer cancel()
	err := sb.client.api.Sandboxes.Refresh(ctx, sb.ID(), lease)
	if e, ok := errors.AsType[*api.Error](err); ok && e.RouteMissing() {
		err = sb.client.api.Sandboxes.SetTimeout(ctx, sb.ID(), lease)
	}
	if err == nil {
		sb.extended(lease)
	}
	return err
}

// extended notes that the sandbox lives for d from now.
func (sb *Sandbox) extended(d time.Duration) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.endAt = time.Now().Add(d)
}
