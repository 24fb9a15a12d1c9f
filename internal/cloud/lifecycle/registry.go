package lifecycle

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/network"
)

// Limits of a cloud. They are those of the hosted service where it has them.
const (
	DefaultMaxSandboxes = 100
	DefaultMaxLifetime  = 24 * time.Hour
)

// Options configure a [Registry].
type Options struct {
	MaxSandboxes int           // 0: DefaultMaxSandboxes
	MaxLifetime  time.Duration // 0: DefaultMaxLifetime
	Logger       *slog.Logger  // nil: no log

	// Launch starts a sandbox. The registry closes every sandbox that Launch
	// returned: on request, when its lifetime is over, and in Registry.Close.
	Launch func(ctx context.Context, spec Spec) (Instance, error)
}

// Registry holds the records of all running sandboxes. It is safe for
// concurrent use. Call Close to end it.
type Registry struct {
	options Options

	wake chan struct{}  // a deadline changed
	stop chan struct{}  // closed by Close
	work sync.WaitGroup // the evictor, and what it and the watchers do

	mu       sync.Mutex
	records  map[string]*record
	ended    endedLog
	attempts attempts
	places   int // sandboxes that are starting, running or ending
	offset   time.Duration
	closed   bool
}

// record is a running sandbox. Registry.mu guards Network and EndAt; nothing
// else ever changes.
type record struct {
	Sandbox
	instance Instance
}

// New returns a registry without sandboxes. Call Close to end it.
func New(o Options) *Registry {
	if o.MaxSandboxes == 0 {
		o.MaxSandboxes = DefaultMaxSandboxes
	}
	if o.MaxLifetime == 0 {
		o.MaxLifetime = DefaultMaxLifetime
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Registry{
		options:  o,
		wake:     make(chan struct{}, 1),
		stop:     make(chan struct{}),
		records:  map[string]*record{},
		attempts: attempts{byKey: map[string]*attempt{}},
	}
	r.work.Go(r.evictor)
	return r
}

// MaxLifetime returns the longest lifetime a sandbox may have.
func (r *Registry) MaxLifetime() time.Duration { return r.options.MaxLifetime }

// Close ends every sandbox and waits until they have gone. From then on Create
// returns [ErrClosed]. Close is idempotent.
func (r *Registry) Close() error {
	r.mu.Lock()
	first := !r.closed
	r.closed = true
	var all []*record
	for id := range r.records {
		all = append(all, r.takeLocked(id))
	}
	r.mu.Unlock()
	if first {
		close(r.stop)
	}
	r.endAll(all, "the cloud was closed")
	r.work.Wait()
	return nil
}

// Create starts a sandbox and records it. Its lifetime counts from the moment
// it runs. Errors are [ErrClosed], a [*LimitError], a [*RefusedError], a
// [*LaunchError], and ctx's, after which nothing of the sandbox is left.
func (r *Registry) Create(ctx context.Context, q Request) (Sandbox, error) {
	sb, spec := q.spec()
	if err := r.reserve(); err != nil {
		return Sandbox{}, err
	}
	instance, err := r.options.Launch(ctx, spec)
	if err != nil {
		r.release()
		return Sandbox{}, &LaunchError{err}
	}
	rec := &record{Sandbox: sb, instance: instance}
	// The client may have gone: then nobody would know of this sandbox.
	if err := ctx.Err(); err != nil {
		r.end(rec, "the client that created it was gone")
		return Sandbox{}, err
	}
	if !r.add(rec, q.Lifetime) {
		r.end(rec, "the cloud was closed")
		return Sandbox{}, ErrClosed
	}
	r.options.Logger.InfoContext(ctx, "sandbox created", "sandbox", sb.ID, "template", sb.Template.Alias)
	return r.snapshot(rec), nil
}

// Get returns the record of a running sandbox, or a [*NotFoundError].
func (r *Registry) Get(id string) (Sandbox, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, err := r.findLocked(id)
	if err != nil {
		return Sandbox{}, err
	}
	return rec.Sandbox, nil
}

// List returns the records of all running sandboxes, in no particular order.
func (r *Registry) List() []Sandbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Sandbox, 0, len(r.records))
	for _, rec := range r.records {
		all = append(all, rec.Sandbox)
	}
	return all
}

// Kill ends a sandbox; when it returns, everything in the sandbox is dead. It
// returns a [*NotFoundError] if the sandbox does not exist.
func (r *Registry) Kill(id string) error {
	r.mu.Lock()
	rec, err := r.findLocked(id)
	if err == nil {
		r.takeLocked(id)
	}
	r.mu.Unlock()
	if err != nil {
		return err
	}
	r.end(rec, "it was killed by request")
	return nil
}

// SetEgress replaces what a sandbox may reach, and what is reported about that.
// How the sandbox can be reached does not change. It returns a [*NotFoundError]
// if the sandbox does not exist.
func (r *Registry) SetEgress(id string, allowOut, denyOut []string, rules *network.Rules) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, err := r.findLocked(id)
	if err != nil {
		return err
	}
	var changed Network // a new value: records that were handed out keep the old one
	if rec.Network != nil {
		changed = *rec.Network
	}
	changed.AllowOut, changed.DenyOut = allowOut, denyOut
	rec.Network = &changed
	rec.instance.SetEgress(rules)
	return nil
}

// reserve takes a place for a sandbox before it is started, so that many
// requests at the same time do not start more sandboxes than are allowed.
func (r *Registry) reserve() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return ErrClosed
	case r.places >= r.options.MaxSandboxes:
		return &LimitError{r.options.MaxSandboxes}
	}
	r.places++
	return nil
}

func (r *Registry) release() {
	r.mu.Lock()
	r.places--
	r.mu.Unlock()
}

// add records a started sandbox. It reports false if the registry has been
// closed.
func (r *Registry) add(rec *record, lifetime time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	rec.StartedAt = r.nowLocked()
	rec.EndAt = rec.StartedAt.Add(lifetime)
	r.records[rec.ID] = rec
	r.wakeEvictor()
	r.work.Go(func() { r.watch(rec) })
	return true
}

// watch removes the record of a sandbox that ends by itself.
func (r *Registry) watch(rec *record) {
	<-rec.instance.Done()
	r.mu.Lock()
	taken := r.takeLocked(rec.ID)
	r.mu.Unlock()
	if taken != nil {
		r.end(rec, fmt.Sprintf("it died: %v", rec.instance.Err()))
	}
}

func (r *Registry) snapshot(rec *record) Sandbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	return rec.Sandbox
}

func (r *Registry) findLocked(id string) (*record, error) {
	rec := r.records[id]
	if rec == nil {
		return nil, &NotFoundError{ID: id, How: r.ended.of(id)}
	}
	return rec, nil
}

// takeLocked removes a sandbox from the records, so that nobody finds it from
// then on. The caller must end it.
func (r *Registry) takeLocked(id string) *record {
	rec := r.records[id]
	delete(r.records, id)
	return rec
}

// end closes a sandbox that was taken and frees its place.
func (r *Registry) end(rec *record, how string) {
	r.mu.Lock()
	r.ended.add(rec.ID, r.nowLocked(), how)
	r.mu.Unlock()
	ctx := context.Background()
	if err := rec.instance.Close(); err != nil {
		r.options.Logger.ErrorContext(ctx, "sandbox not closed cleanly", "sandbox", rec.ID, "error", err)
	}
	r.release()
	r.options.Logger.InfoContext(ctx, "sandbox ended", "sandbox", rec.ID, "how", how)
}

func (r *Registry) endAll(all []*record, how string) {
	var work sync.WaitGroup
	for _, rec := range all {
		work.Go(func() { r.end(rec, how) })
	}
	work.Wait()
}
