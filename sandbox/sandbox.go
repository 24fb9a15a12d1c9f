package sandbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/gen/process/processconnect"
)

// Sandbox is a handle to one sandbox. It is safe for concurrent use. Always close it: Close ends a
// sandbox that was created through the handle. If the handle only connected to a sandbox, Close
// leaves the sandbox running.
type Sandbox struct {
	// Files reads and writes the sandbox's files.
	Files *Files
	// Commands runs commands in the sandbox.
	Commands *Commands
	// Git works with repositories in the sandbox.
	Git *Git
	// PTY opens terminals in the sandbox.
	PTY *PTY
	// Contexts manages the contexts in which code runs.
	Contexts *Contexts
	// Packages installs packages for the sandbox's Python.
	Packages *Packages

	client    *Client
	ownClient bool
	created   bool
	remote    *api.Sandbox
	processes processconnect.ProcessClient
	code      *codeRunner
	attached  attached
	config    sandboxConfig

	released func() // called when the handle is closed; may be nil

	mu      sync.Mutex
	closing func() error // nil while the handle is open
	killed  bool         // Close has ended the sandbox
	calls   map[*inFlight]struct{}
	endAt   time.Time // end of the sandbox's lifetime, as far as this handle knows it
	running sync.WaitGroup

	lease  lease
	asleep asleep
	dying  atomic.Bool // Close is killing the sandbox
}

// inFlight is a call in progress, which Close cuts off, or work in the background, which Close cuts
// off after it has ended the sandbox.
type inFlight struct {
	cancel     context.CancelCauseFunc
	background bool
}

// Create starts a sandbox with its own client, configured by the options and the environment.
// Closing the sandbox also closes that client. See [Client.Create].
func Create(ctx context.Context, opts ...CreateOption) (*Sandbox, error) {
	return withOwnClient(opts, func(c *Client, opts []CreateOption) (*Sandbox, error) { return c.Create(ctx, opts...) })
}

// Connect returns a handle to an existing sandbox, with its own client. Closing the handle also
// closes that client. See [Client.Connect].
func Connect(ctx context.Context, id string, opts ...ConnectOption) (*Sandbox, error) {
	return withOwnClient(opts, func(c *Client, opts []ConnectOption) (*Sandbox, error) { return c.Connect(ctx, id, opts...) })
}

// withOwnClient creates a client from the client options among opts, and calls open with that
// client and the other options.
func withOwnClient[O option](opts []O, open func(*Client, []O) (*Sandbox, error)) (*Sandbox, error) {
	if err := checkOptions(opts); err != nil {
		return nil, err
	}
	var ofClient []ClientOption
	var others []O
	for _, o := range opts {
		if client, ok := any(o).(ClientOption); ok {
			ofClient = append(ofClient, client)
		} else {
			others = append(others, o)
		}
	}
	c, err := NewClient(ofClient...)
	if err != nil {
		return nil, err
	}
	sb, err := open(c, others)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	sb.ownClient = true
	return sb, nil
}

// Use creates a sandbox, calls fn with it, and closes it even if fn panics. It returns the
// errors of fn and of Close.
func Use(ctx context.Context, fn func(context.Context, *Sandbox) error, opts ...CreateOption) (err error) {
	sb, err := Create(ctx, opts...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sb.Close()) }()
	return fn(ctx, sb)
}

func newSandbox(c *Client, remote *api.Sandbox, cfg sandboxConfig, created bool) *Sandbox {
	sb := &Sandbox{
		client: c, remote: remote, created: created, config: cfg,
		calls: map[*inFlight]struct{}{},
		endAt: time.Now().Add(cfg.life()),
	}
	if created && !cfg.inherits && cfg.expiry.Idle > 0 && cfg.expiry.After == 0 {
		sb.endAt = time.Now().Add(longestLife)
	}
	sb.Files = newFiles(sb)
	sb.Commands = &Commands{sb}
	sb.Git = &Git{sb}
	sb.PTY = &PTY{sb}
	sb.Contexts = &Contexts{sb}
	sb.Packages = newPackages(sb, cfg)
	sb.code = newCodeRunner(sb, cfg)
	sb.processes = newProcessClient(sb)
	sb.lease.sb, sb.lease.length = sb, cfg.renewal()
	sb.lease.unsure = (!created || cfg.inherits) && !cfg.expiry.Renew
	sb.lease.start(sb.lease.length / 2)
	if cfg.ask != nil {
		(&asker{sb, cfg.ask}).start()
	}
	return sb
}

// ID returns the sandbox's id.
func (sb *Sandbox) ID() string { return sb.remote.ID }

// Owned reports whether Close ends the sandbox. That is so for a sandbox that was created through
// the handle, and not for a sandbox to which the handle only connected.
func (sb *Sandbox) Owned() bool { return sb.created }

// Info returns the current description of the sandbox.
func (sb *Sandbox) Info(ctx context.Context) (*Info, error) {
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	info, err := sb.client.api.Sandboxes.Get(ctx, sb.ID())
	if err != nil {
		return nil, sb.failed(ctx, "info", missing(sb.ID(), err))
	}
	return new(infoOf(*info)), nil
}

// SetLifetime sets the end of a sandbox's lifetime to d from now. That may be earlier than before.
// Any program may have created the sandbox. A program that has a lease of the sandbox continues to
// renew the lease. The error is [ErrGone] if there is no such sandbox. It is [ErrGone] with
// [GonePaused] if the sandbox is paused, because a paused sandbox has no lifetime.
func (c *Client) SetLifetime(ctx context.Context, id string, d time.Duration) error {
	if err := c.api.Sandboxes.SetLifetime(ctx, id, d); err != nil {
		return fmt.Errorf("sandbox: set lifetime: %w", c.asleepOrMissing(ctx, id, err))
	}
	return nil
}

// SetLifetime sets the end of the sandbox's lifetime to d from now. That may be earlier than
// before. The action at the end remains that of [Expiry].Then. SetLifetime ends the lease, so the
// lifetime is fixed from then on. If SetLifetime fails, the lease continues.
func (sb *Sandbox) SetLifetime(ctx context.Context, d time.Duration) error {
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	sb.lease.pause()
	if err := sb.client.api.Sandboxes.SetLifetime(ctx, sb.ID(), d); err != nil {
		sb.lease.start(sb.lease.length / hurry)
		return sb.failed(ctx, "set lifetime", missing(sb.ID(), err))
	}
	sb.lease.end()
	sb.extended(d)
	return nil
}

// Kill ends the sandbox. Any program may have created it. The error is [ErrGone] if the sandbox has
// already ended. The handle stays open and must be closed. [Sandbox.Close] compares Close, Detach
// and Kill.
func (sb *Sandbox) Kill(ctx context.Context) error {
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	sb.lease.end()
	if err := sb.client.api.Sandboxes.Kill(ctx, sb.ID()); err != nil {
		return sb.failed(ctx, "kill", missing(sb.ID(), err))
	}
	return nil
}

// Detach closes the handle and leaves the sandbox running or paused, until its lifetime ends. The
// lease is no longer renewed. [Sandbox.Close] compares Close, Detach and Kill.
func (sb *Sandbox) Detach() error {
	if end, first := sb.startClosing(false); first {
		return end()
	}
	return fmt.Errorf("%w: %s", ErrClosed, sb.ID())
}

// Close ends the calls in progress, which return [ErrClosed], and closes the handle. If the
// handle owns the sandbox ([Sandbox.Owned]), it also ends the sandbox, even a paused one. It
// takes at most 10 seconds. It may be called more than once and on nil.
//
// This table compares Close, Detach and Kill. The columns describe the effect on an owned sandbox,
// the effect on a sandbox that is not owned, the effect on the handle, the result if the sandbox
// has ended, and the result if the handle is closed:
//
//	        owned      not owned  the handle  if it is gone  of a closed handle
//	Close   ends it    leaves it  is closed   nil            nil
//	Detach  leaves it  leaves it  is closed   nil            ErrClosed
//	Kill    ends it    ends it    stays open  ErrGone        ErrClosed
func (sb *Sandbox) Close() error {
	if sb == nil {
		return nil
	}
	end, _ := sb.startClosing(sb.created)
	return end()
}

// startClosing returns the function that closes the handle. The first caller decides whether that
// function also kills the sandbox.
func (sb *Sandbox) startClosing(kill bool) (end func() error, first bool) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.closing != nil {
		return sb.closing, false
	}
	sb.closing = sync.OnceValue(func() error { return sb.close(kill) })
	sb.dying.Store(kill)
	sb.cut(false, ErrClosed)
	return sb.closing, true
}

// cut cuts off the calls in progress, or the work in the background, with a cause. mu is locked.
func (sb *Sandbox) cut(background bool, cause error) {
	for c := range sb.calls {
		if c.background == background {
			c.cancel(cause)
		}
	}
}

func (sb *Sandbox) close(kill bool) error {
	if sb.released != nil {
		defer sb.released()
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	sb.lease.end()
	var failed []error
	if kill {
		// Kill first, because that ends the processes that the calls in progress wait for.
		if err := sb.client.api.Sandboxes.Kill(ctx, sb.ID()); err != nil && !errors.Is(err, api.ErrNotFound) && !errors.Is(err, ErrGone) {
			failed = append(failed, fmt.Errorf("sandbox: close %s: %w", sb.ID(), uncancelled(err)))
		} else {
			sb.mu.Lock()
			sb.killed = true
			sb.cut(true, ErrGone) // nothing remains to be cleaned up
			sb.mu.Unlock()
		}
		sb.code.kernels.Close()
	}
	deadline, _ := ctx.Deadline()
	if !waitFor(&sb.running, time.Until(deadline)) {
		failed = append(failed, fmt.Errorf("sandbox: close %s: calls in flight did not end in %v", sb.ID(), closeTimeout))
	}
	sb.code.kernels.Close()
	if sb.ownClient {
		failed = append(failed, sb.client.Close())
	}
	return errors.Join(failed...)
}

// begin registers a call. The returned context ends with ctx and, with the cause [ErrClosed],
// when the handle is closed. The caller must call end.
func (sb *Sandbox) begin(ctx context.Context) (_ context.Context, end func(), err error) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.closing != nil {
		return nil, nil, fmt.Errorf("%w: %s", ErrClosed, sb.ID())
	}
	// Do not start work for a caller whose context has ended.
	if ctx.Err() != nil {
		return nil, nil, fmt.Errorf("sandbox: %s: %w", sb.ID(), context.Cause(ctx))
	}
	ctx, end = sb.register(ctx, false)
	return ctx, end, nil
}

// register adds a call or work in the background to those that Close cuts off and waits for. mu is
// locked. The caller must call end, with mu unlocked.
func (sb *Sandbox) register(ctx context.Context, background bool) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := &inFlight{cancel, background}
	sb.calls[c] = struct{}{}
	sb.running.Add(1)
	return ctx, func() {
		cancel(nil)
		sb.mu.Lock()
		delete(sb.calls, c)
		sb.mu.Unlock()
		sb.running.Done()
	}
}

// background does the work that remains after a call was cut off, such as waiting for the end of
// its command or code. background must be called only during a registered call (see begin). Close
// waits for the work. If Close ends the sandbox, it then cuts off the work, with the cause [ErrGone].
func (sb *Sandbox) background(ctx context.Context, do func(context.Context)) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	ctx, end := sb.register(context.WithoutCancel(ctx), true)
	if sb.killed {
		sb.cut(true, ErrGone)
	}
	go func() {
		defer end()
		ctx, cancel := context.WithTimeout(ctx, closeTimeout)
		defer cancel()
		do(ctx)
	}()
}
