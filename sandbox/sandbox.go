package sandbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/gen/process/processconnect"
)

// Sandbox is a handle to one sandbox. It is safe for concurrent use. Close it:
// a sandbox that was created through the handle is torn down then, one that
// was connected to keeps running.
type Sandbox struct {
	// Files are the sandbox's files.
	Files *Files
	// Commands run in the sandbox.
	Commands *Commands
	// Git works with repositories in the sandbox.
	Git *Git
	// PTY opens terminals in the sandbox.
	PTY *PTY
	// Packages are those of the sandbox's Python.
	Packages *Packages

	client    *Client
	ownClient bool
	created   bool
	remote    *api.Sandbox
	processes processconnect.ProcessClient
	code      *codeRunner
	attached  attached

	mu      sync.Mutex
	closing func() error // nil while the handle is open
	calls   map[*inFlight]struct{}
	endAt   time.Time // when the sandbox ends, as far as this handle knows
	running sync.WaitGroup

	lease lease
}

// inFlight is a call that Close cuts off.
type inFlight struct{ cancel context.CancelCauseFunc }

// Create starts a sandbox with a client of its own, made from the options and
// the environment; the sandbox's Close closes that, too. See [Client.Create].
func Create(ctx context.Context, opts ...Option) (*Sandbox, error) {
	return withOwnClient(opts, func(c *Client) (*Sandbox, error) { return c.Create(ctx) })
}

// Connect gives a handle to a sandbox that is there already, with a client of
// its own. See [Client.Connect].
func Connect(ctx context.Context, id string, opts ...Option) (*Sandbox, error) {
	return withOwnClient(opts, func(c *Client) (*Sandbox, error) { return c.Connect(ctx, id) })
}

func withOwnClient(opts []Option, open func(*Client) (*Sandbox, error)) (*Sandbox, error) {
	c, err := NewClient(opts...)
	if err != nil {
		return nil, err
	}
	sb, err := open(c)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	sb.ownClient = true
	return sb, nil
}

// Use creates a sandbox, calls fn with it and closes it, whatever becomes of
// fn, a panic included. It returns what went wrong in fn and in Close.
func Use(ctx context.Context, fn func(context.Context, *Sandbox) error, opts ...Option) (err error) {
	sb, err := Create(ctx, opts...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sb.Close()) }()
	return fn(ctx, sb)
}

func newSandbox(c *Client, remote *api.Sandbox, cfg sandboxConfig, created bool) *Sandbox {
	sb := &Sandbox{
		client: c, remote: remote, created: created,
		calls: map[*inFlight]struct{}{},
		endAt: time.Now().Add(cfg.timeout()),
	}
	sb.Files = newFiles(sb)
	sb.Commands = &Commands{sb}
	sb.Git = &Git{sb}
	sb.PTY = &PTY{sb}
	sb.Packages = newPackages(sb, cfg)
	sb.code = newCodeRunner(sb, cfg)
	sb.processes = newProcessClient(sb)
	sb.lease.sb, sb.lease.length = sb, cfg.lease
	sb.lease.start(cfg.lease / 2)
	return sb
}

// ID is the sandbox's id.
func (sb *Sandbox) ID() string { return sb.remote.ID }

// Info describes the sandbox as it is now.
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
	return info, nil
}

// SetLifetime makes the sandbox end after d from now, which may be earlier
// than before. It ends the lease: from then on the life is fixed. When it fails, the
// lease goes on.
func (sb *Sandbox) SetLifetime(ctx context.Context, d time.Duration) error {
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	sb.lease.pause()
	if err := sb.client.api.Sandboxes.SetTimeout(ctx, sb.ID(), d); err != nil {
		sb.lease.start(sb.lease.length / hurry)
		return sb.failed(ctx, "set lifetime", missing(sb.ID(), err))
	}
	sb.lease.end()
	sb.extended(d)
	return nil
}

// Kill ends the sandbox, whoever created it. One that is gone already is
// [ErrGone]. The handle still wants its Close.
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

// Detach closes the handle and leaves the sandbox running, for the rest of its
// life; the lease is not renewed any more.
func (sb *Sandbox) Detach() error {
	if end, first := sb.startClosing(false); first {
		return end()
	}
	return fmt.Errorf("%w: %s", ErrClosed, sb.ID())
}

// Close ends what goes on through the handle and, when the sandbox was created
// through it, the sandbox. It takes 10 seconds at most, is idempotent and safe
// on nil, and a sandbox that is gone already is no error. Calls in flight
// return [ErrClosed].
func (sb *Sandbox) Close() error {
	if sb == nil {
		return nil
	}
	end, _ := sb.startClosing(sb.created)
	return end()
}

// startClosing gives what closes the handle; the first caller decides whether
// the sandbox goes, too.
func (sb *Sandbox) startClosing(kill bool) (end func() error, first bool) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.closing != nil {
		return sb.closing, false
	}
	sb.closing = sync.OnceValue(func() error { return sb.close(kill) })
	for c := range sb.calls {
		c.cancel(ErrClosed)
	}
	return sb.closing, true
}

func (sb *Sandbox) close(kill bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	sb.lease.end()
	var failed []error
	if kill {
		// First of all: with the sandbox go its processes, and with them what the
		// calls in flight wait for.
		if err := sb.client.api.Sandboxes.Kill(ctx, sb.ID()); err != nil && !errors.Is(err, api.ErrNotFound) {
			failed = append(failed, fmt.Errorf("sandbox: close %s: %w", sb.ID(), err))
		}
		sb.code.close()
	}
	deadline, _ := ctx.Deadline()
	if !waitFor(&sb.running, time.Until(deadline)) {
		failed = append(failed, fmt.Errorf("sandbox: close %s: calls in flight did not end in %v", sb.ID(), closeTimeout))
	}
	sb.code.close()
	if sb.ownClient {
		failed = append(failed, sb.client.Close())
	}
	return errors.Join(failed...)
}

// begin opens a call: the context it gives ends with the caller's and, with
// the cause [ErrClosed], when the handle is closed. end must be called.
func (sb *Sandbox) begin(ctx context.Context) (_ context.Context, end func(), err error) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.closing != nil {
		return nil, nil, fmt.Errorf("%w: %s", ErrClosed, sb.ID())
	}
	// Nothing may start for one who has given up already.
	if ctx.Err() != nil {
		return nil, nil, fmt.Errorf("sandbox: %s: %w", sb.ID(), context.Cause(ctx))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	c := &inFlight{cancel}
	sb.calls[c] = struct{}{}
	sb.running.Add(1)
	return ctx, func() {
		cancel(nil)
		sb.mu.Lock()
		delete(sb.calls, c)
		sb.mu.Unlock()
		sb.running.Done()
	}, nil
}

// background does what outlives a call that was given up: it sees the command
// or cell of that call to its end. It may be used within a call alone. Close
// waits for it.
func (sb *Sandbox) background(ctx context.Context, do func(context.Context)) {
	sb.running.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		do(ctx)
	})
}
