package sandbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/api"
)

const (
	// poolCheckEvery is the interval between checks of waiting sandboxes, so that a sandbox
	// that has ended is replaced before a Get.
	poolCheckEvery = 30 * time.Second
	// poolCheckTimeout limits the time of a check.
	poolCheckTimeout = 5 * time.Second
	// maxPoolStarts limits the concurrent creations of a pool.
	maxPoolStarts = 16

	firstPoolBackoff = 200 * time.Millisecond
	maxPoolBackoff   = 30 * time.Second
)

// keep creates missing sandboxes and discards expiring ones, until Close.
func (p *Pool) keep() {
	checks := time.NewTicker(poolCheckEvery)
	defer checks.Stop()
	for {
		next := p.tend()
		timer := time.NewTimer(next)
		select {
		case <-p.ctx.Done():
			timer.Stop()
			return
		case <-p.kick:
		case <-timer.C:
		case <-checks.C:
			p.checkAll()
		}
		timer.Stop()
	}
}

// tend starts the creation of missing sandboxes, and discards those whose lifetime is nearly over.
// next is the longest time that may pass until tend is called again.
func (p *Pool) tend() (next time.Duration) {
	p.mu.Lock()
	now := time.Now()
	worn, next := p.worn(now)
	p.lent += len(worn)
	missing, wait := p.missing(now)
	p.starting += missing
	p.mu.Unlock()
	for _, sb := range worn {
		p.discard(sb, fmt.Errorf("less than %v of its life is left", p.params.MinLifetime))
	}
	for range missing {
		p.work.Go(p.make)
	}
	if wait > 0 {
		next = min(next, wait)
	}
	return next
}

// worn removes and returns the sandboxes whose lifetime is nearly over. next is the time until the
// lifetime of a further sandbox is nearly over, at most an hour. The caller must hold p.mu.
func (p *Pool) worn(now time.Time) (worn []*Sandbox, next time.Duration) {
	next = time.Hour
	p.warm = slices.DeleteFunc(p.warm, func(sb *Sandbox) bool {
		left := sb.end().Sub(now) - p.params.MinLifetime
		if left <= 0 {
			worn = append(worn, sb)
			return true
		}
		next = min(next, left)
		return false
	})
	return worn, next
}

// missing returns the number of sandboxes to create now. After failures it returns the time
// until the next try. The caller must hold p.mu.
func (p *Pool) missing(now time.Time) (n int, wait time.Duration) {
	n = p.params.Warm + len(p.waiting) - len(p.warm) - p.starting
	if p.params.MaxSandboxes > 0 {
		n = min(n, p.params.MaxSandboxes-len(p.warm)-p.starting-p.lent-p.ending)
	}
	most := maxPoolStarts
	if p.failures > 0 {
		most = 1 // one creation tests whether creations work again
	}
	n = min(n, most-p.starting)
	if wait = p.resume.Sub(now); n <= 0 || p.closed {
		return 0, 0
	} else if p.failures > 0 && wait > 0 {
		return 0, wait
	}
	return n, 0
}

// make creates one sandbox. It gives the sandbox to a waiting Get, or keeps it ready.
func (p *Pool) make() {
	begun := time.Now()
	sb, err := p.client.Create(p.ctx, p.opts...)
	if err == nil && p.params.Prepare != nil {
		if err = p.params.Prepare(p.ctx, sb); err != nil {
			err = fmt.Errorf("sandbox: prepare %s for the pool: %w", sb.ID(), err)
			p.shutOne(sb)
		}
	}
	if err == nil {
		p.count(PoolEvent{Type: PoolCreated, Sandbox: sb.ID(), Duration: time.Since(begun)})
	}
	p.mu.Lock()
	p.starting--
	closed := p.closed
	switch {
	case err != nil:
		p.failed(err, time.Now())
	case closed:
		p.lent++
	default:
		p.failures, p.failure, p.resume = 0, nil, time.Time{}
		if !p.hand(sb) {
			p.warm = append(p.warm, sb)
		}
	}
	p.changed()
	p.mu.Unlock()
	switch {
	case err != nil && closed: // Close has cut off the creation
	case err != nil:
		p.client.api.Logger().WarnContext(p.ctx, "a sandbox for the pool was not made", "error", err)
		p.count(PoolEvent{Type: PoolFailed, Duration: time.Since(begun), Err: err})
	case closed:
		p.discard(sb, errPoolClosed)
	}
}

// failed records a failed creation. Calls of Get continue to wait only if the error can pass
// with time. The caller must hold p.mu.
func (p *Pool) failed(err error, now time.Time) {
	wait := min(firstPoolBackoff<<min(p.failures, 16), maxPoolBackoff)
	wait = wait/2 + rand.N(wait/2)
	if e, ok := errors.AsType[*api.Error](err); ok {
		wait = max(wait, e.RetryAfter)
	}
	p.failures++
	p.failure, p.resume = err, now.Add(wait)
	if passes(err) {
		return
	}
	for _, w := range p.waiting {
		w.answer <- poolAnswer{err: err}
	}
	p.waiting = nil
}

// passes reports whether an error can pass with time. The error that too many sandboxes exist can
// pass, because other sandboxes end.
func passes(err error) bool {
	return errors.Is(err, api.ErrRetryable) || errors.Is(err, api.ErrRateLimited) || errors.Is(err, api.ErrTimeout)
}

// fit returns an error if Get must not return sb.
func (p *Pool) fit(ctx context.Context, sb *Sandbox) error {
	if left := time.Until(sb.end()); left < p.params.MinLifetime {
		return fmt.Errorf("only %v of its life is left", left)
	}
	ctx, cancel := context.WithTimeout(ctx, poolCheckTimeout)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	status, err := sb.health(ctx)
	switch {
	case err != nil:
		return err
	case status >= http.StatusMultipleChoices:
		return fmt.Errorf("its daemon answers %d when asked how it is", status)
	case p.params.Check != nil:
		return p.params.Check(ctx, sb)
	}
	return nil
}

// checkAll checks the waiting sandboxes in the background. Get may take a sandbox while checkAll
// checks it. Get then checks the sandbox, too.
func (p *Pool) checkAll() {
	p.mu.Lock()
	warm := slices.Clone(p.warm)
	busy := p.checking
	p.checking = true
	p.mu.Unlock()
	if busy {
		return
	}
	p.work.Go(func() {
		var checks sync.WaitGroup
		for _, sb := range warm {
			checks.Go(func() {
				if err := p.fit(p.ctx, sb); err != nil && p.withdraw(sb) {
					p.discard(sb, err)
				}
			})
		}
		checks.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.checking = false
	})
}

// withdraw removes a waiting sandbox from the pool, and reports whether it was still waiting.
func (p *Pool) withdraw(sb *Sandbox) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := slices.Index(p.warm, sb)
	if at < 0 {
		return false
	}
	p.warm = slices.Delete(p.warm, at, at+1)
	p.lent++
	return true
}

// discard closes a sandbox that was withdrawn and that no Get will return. discard must be called
// during a registered call (see begin) or in a goroutine of the pool.
func (p *Pool) discard(sb *Sandbox, why error) {
	p.mu.Lock()
	p.lent--
	p.ending++
	p.changed()
	p.mu.Unlock()
	p.count(PoolEvent{Type: PoolDiscarded, Sandbox: sb.ID(), Err: why})
	p.work.Go(func() {
		p.shutOne(sb)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ending--
		p.changed()
	})
}

// shutOne closes a sandbox of the pool. It logs the error of the sandbox's Close. If Close of the
// pool has begun, that Close also returns the error.
func (p *Pool) shutOne(sb *Sandbox) {
	if err := sb.Close(); err != nil {
		p.client.api.Logger().WarnContext(p.ctx, "a sandbox of the pool was not closed: it lives until its lifetime is over", "sandbox", sb.ID(), "error", err)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.closed {
			p.closings = append(p.closings, err)
		}
	}
}
