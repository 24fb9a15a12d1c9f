package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/api"
)

// PoolParams configures a pool. The zero value keeps one sandbox ready.
type PoolParams struct {
	// Warm is the number of ready sandboxes that wait for Get. Zero means 1.
	Warm int
	// MaxSandboxes limits the number of sandboxes that the pool has at the same time. It includes the
	// sandboxes that Get returned and that are not closed. Zero means that only the service limits the
	// number.
	MaxSandboxes int
	// MinLifetime is the minimum remaining lifetime of a sandbox that Get returns. The pool replaces a
	// sandbox whose remaining lifetime is shorter. MinLifetime may be at most half of the lifetime
	// ([Expiry]). The default is half of a fixed lifetime, or a quarter of a lease. A lease is renewed
	// while a sandbox waits, so for a lease MinLifetime matters only if renewals fail.
	MinLifetime time.Duration
	// Prepare is called once with each new sandbox before the sandbox is ready, for instance to
	// install packages. If Prepare fails, the sandbox is closed. Prepare may be nil.
	Prepare func(ctx context.Context, sb *Sandbox) error
	// Check is called before Get returns a sandbox that has waited, and after the daemon of that
	// sandbox has answered. If Check fails, the pool discards the sandbox and tries the next one.
	// Check may be nil.
	Check func(ctx context.Context, sb *Sandbox) error
	// OnEvent is called with each event of the pool, from several goroutines. It must not call Close
	// of the pool. OnEvent may be nil.
	OnEvent func(PoolEvent)
}

// PoolEventType is the type of a pool's event.
type PoolEventType string

// These are the types of events.
const (
	PoolCreated   PoolEventType = "created"   // a sandbox is ready; Duration is the time of its creation
	PoolFailed    PoolEventType = "failed"    // a creation failed; Err is the reason
	PoolTaken     PoolEventType = "taken"     // Get returns a sandbox; Duration is the time of the call
	PoolReleased  PoolEventType = "released"  // the handle that Get returned was closed
	PoolDiscarded PoolEventType = "discarded" // a sandbox is closed unused; Err is the reason
)

// PoolEvent is an event of a pool.
type PoolEvent struct {
	Type PoolEventType
	// Sandbox is the id of the sandbox; empty for [PoolFailed].
	Sandbox  string
	Duration time.Duration
	Err      error
}

// PoolStats contains the counters of a pool.
type PoolStats struct {
	// Warm is the number of ready sandboxes that wait for Get. Starting is the number of
	// sandboxes in creation. InUse is the number of sandboxes that Get returned and that are
	// not closed.
	Warm, Starting, InUse int
	// Waiting is the number of calls of Get that are waiting for a sandbox.
	Waiting int
	// Created, Failed, Taken and Discarded are the numbers of events of these types.
	Created, Failed, Taken, Discarded int64
}

// Pool keeps sandboxes ready, so that callers need not wait for a start. It replaces sandboxes
// that Get returned, that have ended, or whose lifetime is nearly over. It is safe for
// concurrent use. Close it before its client.
type Pool struct {
	client *Client
	params PoolParams
	opts   []CreateOption

	ctx    context.Context //nolint:containedctx // the background work's context, until Close
	cancel context.CancelCauseFunc
	kick   chan struct{}  // receives a value when something has changed
	work   sync.WaitGroup // counts the calls and the goroutines of the pool
	end    func() error

	mu       sync.Mutex
	closed   bool
	warm     []*Sandbox // the sandboxes that are ready, oldest first
	waiting  []*poolWaiter
	lent     int // the number of sandboxes that Get has returned, or checks before it returns them
	starting int
	ending   int // the number of sandboxes that are being closed unused
	failures int // number of consecutive failed creations
	failure  error
	resume   time.Time // after failures, no sandbox is created before this time
	checking bool
	closings []error
	counts   PoolStats
}

// poolWaiter is a call of Get that waits for a sandbox.
type poolWaiter struct{ answer chan poolAnswer }

type poolAnswer struct {
	sb  *Sandbox
	err error
}

// NewPool returns a pool and starts to create its sandboxes, as [Client.Create] does with opts. Get
// returns the errors of failed creations. The client's logger also receives these errors.
func (c *Client) NewPool(p *PoolParams, opts ...CreateOption) (*Pool, error) {
	cfg, err := configure(c, "NewPool", opts)
	if err != nil {
		return nil, err
	}
	params, err := p.complete(&cfg)
	if err != nil {
		return nil, fmt.Errorf("sandbox: NewPool: %w: %w", api.ErrInvalidArgument, err)
	}
	pool := &Pool{client: c, params: params, opts: slices.Clone(opts), kick: make(chan struct{}, 1)}
	pool.ctx, pool.cancel = context.WithCancelCause(context.Background())
	pool.end = sync.OnceValue(pool.shut)
	pool.work.Go(pool.keep)
	return pool, nil
}

// complete returns the parameters with defaults in place of zero values.
func (p *PoolParams) complete(cfg *sandboxConfig) (PoolParams, error) {
	var params PoolParams
	if p != nil {
		params = *p
	}
	params.Warm = cmp.Or(params.Warm, 1)
	switch {
	case params.Warm < 0 || params.MaxSandboxes < 0 || params.MinLifetime < 0:
		return params, fmt.Errorf("PoolParams with Warm %d, MaxSandboxes %d and MinLifetime %v: want none below 0", params.Warm, params.MaxSandboxes, params.MinLifetime)
	case params.MaxSandboxes > 0 && params.MaxSandboxes < params.Warm:
		return params, fmt.Errorf("PoolParams with MaxSandboxes %d and Warm %d: want a limit of at least the sandboxes that wait", params.MaxSandboxes, params.Warm)
	case params.MinLifetime > cfg.life()/2:
		return params, fmt.Errorf("PoolParams with MinLifetime %v: want at most half of the %v that a sandbox lives", params.MinLifetime, cfg.life())
	case params.MinLifetime == 0 && cfg.renewal() == 0:
		params.MinLifetime = cfg.life() / 2
	case params.MinLifetime == 0:
		params.MinLifetime = cfg.life() / 4
	}
	return params, nil
}

// Get returns a sandbox that has been checked. The caller must close the sandbox. Closing it makes
// room for another sandbox. If no sandbox is ready, or MaxSandboxes are in use, Get waits for a
// sandbox until ctx ends, even if the service is busy or unreachable. But it returns at once if
// creations fail with an error that does not pass with time, such as an unknown template. After
// Close it returns [ErrClosed].
func (p *Pool) Get(ctx context.Context) (*Sandbox, error) {
	begun := time.Now()
	if err := p.begin(); err != nil {
		return nil, err
	}
	defer p.work.Done()
	for {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("sandbox: get from the pool: %w", context.Cause(ctx))
		}
		sb, waiter, err := p.take()
		switch {
		case err != nil:
			return nil, err
		case waiter != nil:
			if sb, err = p.wait(ctx, waiter); err != nil {
				return nil, err
			}
		default:
			unfit := p.fit(ctx, sb)
			if unfit != nil && ctx.Err() != nil { // the error says nothing about the sandbox
				p.putBack(sb)
				continue
			}
			if unfit != nil {
				p.discard(sb, unfit)
				continue
			}
		}
		sb.released = func() { p.release(sb) }
		p.count(PoolEvent{Type: PoolTaken, Sandbox: sb.ID(), Duration: time.Since(begun)})
		return sb, nil
	}
}

// Stats returns the current counters.
func (p *Pool) Stats() PoolStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	stats := p.counts
	stats.Warm, stats.Starting, stats.InUse, stats.Waiting = len(p.warm), p.starting, p.lent, len(p.waiting)
	return stats
}

// Close ends the sandboxes that wait for Get and the sandboxes in creation. Calls of Get in
// progress return [ErrClosed]. Sandboxes that Get returned stay open until their callers close
// them. Close takes at most 10 seconds. It may be called more than once and on nil.
func (p *Pool) Close() error {
	if p == nil {
		return nil
	}
	return p.end()
}

func (p *Pool) shut() error {
	p.mu.Lock()
	p.closed = true
	warm, waiting := p.warm, p.waiting
	p.warm, p.waiting = nil, nil
	p.lent += len(warm)
	p.mu.Unlock()
	p.cancel(ErrClosed)
	for _, w := range waiting {
		w.answer <- poolAnswer{err: errPoolClosed}
	}
	for _, sb := range warm {
		p.discard(sb, errPoolClosed)
	}
	var late error
	if !waitFor(&p.work, closeTimeout) {
		late = fmt.Errorf("sandbox: close the pool: sandboxes that were being prepared did not end within %v", closeTimeout)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(append(p.closings, late)...)
}

var errPoolClosed = fmt.Errorf("%w: the pool", ErrClosed)

// begin registers a call that Close waits for.
func (p *Pool) begin() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errPoolClosed
	}
	p.work.Add(1)
	return nil
}

// take returns the sandbox that has waited longest. If no sandbox waits, it returns a place in the
// queue of the waiting calls of Get.
func (p *Pool) take() (*Sandbox, *poolWaiter, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return nil, nil, errPoolClosed
	case len(p.warm) > 0:
		sb := p.warm[0]
		p.warm = slices.Delete(p.warm, 0, 1)
		p.lent++
		p.changed()
		return sb, nil, nil
	case p.failure != nil && !passes(p.failure) && time.Now().Before(p.resume):
		return nil, nil, p.failure
	}
	w := &poolWaiter{make(chan poolAnswer, 1)}
	p.waiting = append(p.waiting, w)
	p.changed()
	return nil, w, nil
}

// wait waits until a new sandbox is given to w. A new sandbox needs no check.
func (p *Pool) wait(ctx context.Context, w *poolWaiter) (*Sandbox, error) {
	select {
	case a := <-w.answer:
		return a.sb, a.err
	case <-ctx.Done():
	}
	p.mu.Lock()
	p.waiting = slices.DeleteFunc(p.waiting, func(other *poolWaiter) bool { return other == w })
	failure := p.failure
	p.mu.Unlock()
	select {
	case a := <-w.answer: // an answer arrived at the same time
		if a.err == nil {
			return a.sb, nil
		}
	default:
	}
	err := fmt.Errorf("sandbox: get from the pool: %w", context.Cause(ctx))
	if failure != nil {
		err = fmt.Errorf("%w; the last sandbox for it was not made: %w", err, failure)
	}
	return nil, err
}

// putBack returns a sandbox to the front of the waiting ones.
func (p *Pool) putBack(sb *Sandbox) {
	p.mu.Lock()
	if !p.closed {
		p.lent--
		if !p.hand(sb) {
			p.warm = slices.Insert(p.warm, 0, sb)
		}
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	p.discard(sb, errPoolClosed)
}

// hand gives a sandbox to the call of Get that has waited longest. It reports whether a call of Get
// waited. The caller must hold p.mu.
func (p *Pool) hand(sb *Sandbox) bool {
	if len(p.waiting) == 0 {
		return false
	}
	p.lent++
	p.waiting[0].answer <- poolAnswer{sb: sb}
	p.waiting = slices.Delete(p.waiting, 0, 1)
	return true
}

// release records that a sandbox from Get was closed.
func (p *Pool) release(sb *Sandbox) {
	p.mu.Lock()
	p.lent--
	// The limit has room again, unless the service has sent a time for the retry.
	if e, ok := errors.AsType[*api.Error](p.failure); ok && errors.Is(e, api.ErrRateLimited) && e.RetryAfter == 0 {
		p.resume = time.Time{}
	}
	p.changed()
	p.mu.Unlock()
	p.count(PoolEvent{Type: PoolReleased, Sandbox: sb.ID()})
}

// changed wakes the goroutine that runs [Pool.keep]. It never blocks.
func (p *Pool) changed() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// count counts an event and passes it to OnEvent.
func (p *Pool) count(e PoolEvent) {
	p.mu.Lock()
	switch e.Type {
	case PoolCreated:
		p.counts.Created++
	case PoolFailed:
		p.counts.Failed++
	case PoolTaken:
		p.counts.Taken++
	case PoolDiscarded:
		p.counts.Discarded++
	}
	p.mu.Unlock()
	if p.params.OnEvent != nil {
		p.params.OnEvent(e)
	}
}
