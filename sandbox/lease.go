package sandbox

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/api"
)

// lease extends a sandbox's lifetime while its handle is open.
type lease struct {
	sb     *Sandbox
	length time.Duration // the length of the lease; 0: the sandbox has no lease

	// If the sandbox pauses at the end of its lifetime, its lease is renewed only if Expiry.Renew is
	// set. A handle that Connect returned must ask the service whether its sandbox pauses at the end
	// of its lifetime. Only the goroutine that renews the lease uses these two fields.
	unsure, unwanted bool

	mu    sync.Mutex
	stop  func() // stops the renewals; nil while nothing renews the lease
	ended bool
}

// start starts the renewals of the lease. The first renewal follows after wait.
func (l *lease) start(wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.length != 0 && l.stop == nil && !l.ended {
		l.stop = l.sb.renewing(l.length, wait)
	}
}

// pause stops the renewals. It waits for a renewal in progress, so that no renewal reaches the
// service before the next start.
func (l *lease) pause() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.halt()
}

// end is like [lease.pause], but stops the renewals forever.
func (l *lease) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.halt()
	l.ended = true
}

func (l *lease) halt() {
	if l.stop != nil {
		l.stop()
		l.stop = nil
	}
}

// renewing renews the lease after wait, and then each time half of the lease has passed, until stop
// is called. stop waits for a renewal in progress.
func (sb *Sandbox) renewing(lease, wait time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var renewing sync.WaitGroup
	renewing.Go(func() {
		for {
			timer := time.NewTimer(wait)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
			if !sb.lease.wanted(ctx) {
				return
			}
			err := sb.renew(ctx, lease)
			switch {
			case err == nil:
				wait = lease / 2
			case errors.Is(err, api.ErrNotFound) && !sb.isPaused(ctx):
				return // the sandbox has ended: the next call on it reports that
			case errors.Is(err, api.ErrNotFound):
				wait = lease / 2 // the sandbox is paused, and whoever resumes it sets its lifetime
			case errors.Is(err, api.ErrConflict):
				wait = lease / hurry // the sandbox is being paused or resumed
			case ctx.Err() == nil:
				sb.client.api.Logger().WarnContext(ctx, "the sandbox's lease was not renewed", "sandbox", sb.ID(), "error", err)
				wait = lease / hurry
			}
		}
	})
	return func() {
		cancel()
		renewing.Wait()
	}
}

// wanted reports whether the lease should be renewed at all.
func (l *lease) wanted(ctx context.Context) bool {
	if l.unsure {
		ctx, cancel := context.WithTimeout(ctx, l.length/4)
		defer cancel()
		info, err := l.sb.client.api.Sandboxes.Get(ctx, l.sb.ID())
		if err != nil {
			return true // the renewal reports the error
		}
		l.unsure = false
		l.unwanted = info.Lifecycle != nil && info.Lifecycle.OnTimeout == OnTimeoutPause
	}
	return !l.unwanted
}

// hurry is the number of retries of a failed renewal within the length of one lease.
const hurry = 20

// renew extends the sandbox's lifetime. It does not shorten a lifetime that another program has
// extended. If the service has no call that extends a lifetime, renew sets the lifetime and may
// shorten it.
func (sb *Sandbox) renew(ctx context.Context, lease time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, lease/4)
	defer cancel()
	err := sb.client.api.Sandboxes.Refresh(ctx, sb.ID(), lease)
	if e, ok := errors.AsType[*api.Error](err); ok && e.RouteMissing() {
		err = sb.client.api.Sandboxes.SetLifetime(ctx, sb.ID(), lease)
	}
	if err == nil {
		sb.extended(lease)
	}
	return err
}

// end returns the end of the sandbox's lifetime, as far as this handle knows it.
func (sb *Sandbox) end() time.Time {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.endAt
}

// extended records that the lifetime of the sandbox ends d from now.
func (sb *Sandbox) extended(d time.Duration) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.endAt = time.Now().Add(d)
}
