package lifecycle

import (
	"context"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/cloud/ordered"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
)

// Limits of a cloud, the hosted service's where it has them.
const (
	DefaultMaxSandboxes = 100
	DefaultMaxLifetime  = 24 * time.Hour
	DefaultMaxFrozen    = 100
	DefaultMaxKept      = 10_000
)

// Options configure a [Registry].
type Options struct {
	MaxSandboxes int           // with a place; 0: DefaultMaxSandboxes
	MaxLifetime  time.Duration // 0: DefaultMaxLifetime
	// MaxFrozen bounds the number of paused sandboxes whose processes are kept, and
	// MaxFrozenMemory their memory in bytes. Beyond them, a memory in a durable store is kept
	// there only. A zero MaxFrozen means DefaultMaxFrozen; a zero MaxFrozenMemory means no limit.
	MaxFrozen       int
	MaxFrozenMemory int64
	// MaxKept bounds the sandboxes whose files are kept; 0: DefaultMaxKept. Beyond it, a
	// requested pause is refused, and a pause at the end of a lifetime fails, so that the sandbox
	// lives on for some minutes and then ends.
	MaxKept int
	Logger  *slog.Logger // nil: no log

	// Store keeps the data for resumes of paused sandboxes: their records, their files and,
	// where it was saved, their memory. The caller closes it after the registry.
	Store *store.Store

	// Layers keeps the layers with which sandboxes begin. If it is nil, they are kept in Store,
	// and each sandbox copies its layers. The caller calls its Sweep after New.
	Layers *layers.Set

	// Launch starts a sandbox. The registry closes every sandbox that Launch
	// returned: on request, when its lifetime is over, and in Registry.Close.
	Launch func(ctx context.Context, spec Spec) (Instance, error)
	// Ended, unless it is nil, is called when a sandbox is gone for good, including one that
	// could not be launched.
	Ended func(id string)
}

// Registry holds the records of all sandboxes. It is safe for concurrent use. Call
// Close to end it.
type Registry struct {
	options Options
	store   *store.Store
	layers  *layers.Set

	wake chan struct{}  // a deadline changed
	stop chan struct{}  // closed by Close
	work sync.WaitGroup // the evictor, transitions, and the watchers' work

	mu       sync.Mutex
	records  map[string]*record
	running  map[string]*record // the records in the state Running
	up, down []*record          // the sandboxes that run, and all others, for lists
	ended    endedLog
	attempts attempts
	places   int    // sandboxes with a place
	frozen   ledger // paused sandboxes that keep their processes
	kept     int    // sandboxes whose files are kept
	offset   time.Duration
	closed   bool
}

// ledger counts sandboxes and their bytes of memory.
type ledger struct {
	sandboxes int
	memory    int64
}

// record is a sandbox. Registry.mu guards all its fields except those that never change: the
// sandbox's id and tokens, and asks.
type record struct {
	Sandbox
	instance   Instance    // nil: it is paused without processes, or about to be resumed
	transition *transition // nil: its state is not changing
	placed     bool        // it is counted in Registry.places
	frozen     *int64      // its bytes in Registry.frozen; nil: it is not counted
	kept       *kept       // the saved files and memory of its latest pause; nil: none
	base       layers.Base // its layers; only set before others know of the record
	asks       *network.Asks
	outdated   bool // its instance's network rules differ from Request's

	list     *[]*record       // the list that it is in, up or down; nil: none
	position ordered.Position // its position in that list

	// The error of a failed automatic pause, and the time until which the pause is tried again.
	unpaused   error
	retryUntil time.Time
}

// becomeLocked replaces all the changeable fields of a record's sandbox with sb's.
func (rec *record) becomeLocked(sb Sandbox) {
	rec.Request, rec.State, rec.StartedAt, rec.EndAt = sb.Request, sb.State, sb.StartedAt, sb.EndAt
	rec.Memory, rec.Unresponsive = sb.Memory, sb.Unresponsive
}

// New returns a registry of the sandboxes that the store keeps. Call Close to end it.
func New(o Options) *Registry {
	if o.MaxSandboxes == 0 {
		o.MaxSandboxes = DefaultMaxSandboxes
	}
	if o.MaxLifetime == 0 {
		o.MaxLifetime = DefaultMaxLifetime
	}
	if o.MaxFrozen == 0 {
		o.MaxFrozen = DefaultMaxFrozen
	}
	if o.MaxKept == 0 {
		o.MaxKept = DefaultMaxKept
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Ended == nil {
		o.Ended = func(string) {}
	}
	if o.Layers == nil {
		o.Layers = layers.Open(layers.Options{Store: o.Store, Logger: o.Logger})
	}
	r := &Registry{
		options:  o,
		store:    o.Store,
		layers:   o.Layers,
		wake:     make(chan struct{}, 1),
		stop:     make(chan struct{}),
		records:  map[string]*record{},
		running:  map[string]*record{},
		attempts: attempts{byKey: map[string]*attempt{}},
	}
	r.restore()
	r.work.Go(r.evictor)
	return r
}

// MaxLifetime returns the longest lifetime a sandbox may have.
func (r *Registry) MaxLifetime() time.Duration { return r.options.MaxLifetime }

// MaxSandboxes returns the maximum number of sandboxes that run at once.
func (r *Registry) MaxSandboxes() int { return r.options.MaxSandboxes }

// Create starts a sandbox and records it. Its lifetime counts from the moment
// it runs. Errors are [ErrClosed], a [*LimitError], a [*RefusedError], a
// [*LaunchError], [layers.ErrGone], and ctx's, after which nothing of the sandbox is left.
func (r *Registry) Create(ctx context.Context, q Request) (Sandbox, error) {
	base, err := r.layers.Use(q.Layers...)
	if err != nil {
		return Sandbox{}, err
	}
	q.Layers = base.IDs
	rec := &record{Sandbox: newSandbox(q, newID(), r.store.Seed()), base: base, asks: new(network.Asks)}
	if err := r.launch(ctx, rec); err != nil {
		base.Release()
		return Sandbox{}, err
	}
	base.Copied()
	// The client may have gone: then nobody would know of this sandbox.
	if err := ctx.Err(); err != nil {
		r.discard(rec, abandoned)
		return Sandbox{}, err
	}
	r.note(rec.ID)
	if !r.add(rec) {
		r.discard(rec, closed)
		return Sandbox{}, ErrClosed
	}
	r.options.Logger.InfoContext(ctx, "sandbox created", "sandbox", rec.ID, "template", q.Template.Alias)
	return r.snapshot(rec), nil
}

// launch starts the sandbox of a new record, and gives it a place.
func (r *Registry) launch(ctx context.Context, rec *record) error {
	spec, err := rec.spec(rec.base.Files, rec.base.Memory)
	if err != nil {
		return &RefusedError{Reason: err.Error()}
	}
	if err := r.enter(rec); err != nil {
		return err
	}
	if rec.instance, err = r.options.Launch(ctx, spec); err != nil {
		r.leave(rec)
		r.options.Ended(rec.ID)
		return &LaunchError{Err: refusal(err, "make the snapshot anew on this machine, or build a template from it, which has its files")}
	}
	return nil
}

// Get returns the record of a sandbox, or a [*NotFoundError].
func (r *Registry) Get(id string) (Sandbox, error) {
	var sb Sandbox
	err := r.on(context.Background(), id, onGet, func(rec *record) (*transition, error) {
		sb = rec.Sandbox
		return nil, nil
	})
	return sb, err
}

// List returns the records of all sandboxes that match, in no particular order; [Registry.Page]
// returns a part of them. match must be quick, and must not use the registry.
func (r *Registry) List(match func(sb *Sandbox) bool) []*Sandbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []*Sandbox
	for _, rec := range r.records {
		_ = r.noticeLocked(rec, nil)
		if table[onGet][rec.State] == act && match(&rec.Sandbox) {
			sb := rec.Sandbox
			found = append(found, &sb)
		}
	}
	return found
}

// Kill ends a sandbox in any state, and removes its files; when it returns, all processes in the
// sandbox are dead. It returns a [*NotFoundError] if the sandbox does not exist. After another
// error the sandbox is paused, and can be killed again.
func (r *Registry) Kill(id string) error {
	var kill func() error
	err := r.on(context.Background(), id, onKill, func(rec *record) (*transition, error) {
		before := rec.transition
		r.takeLocked(rec, killed)
		kill = func() error { return r.kill(rec, before) }
		return nil, nil
	})
	if err != nil {
		return err
	}
	return kill()
}

// SetEgress replaces a running sandbox's rules for outgoing connections, and records asked's
// fields for them. Its fields for connections to the sandbox are ignored. It returns a
// [*NotFoundError] if the sandbox does not exist or is paused, a [*StateError] if its state is
// changing, and a [*RefusedError] if asked has headers and the sandbox was made without any.
func (r *Registry) SetEgress(id string, asked Network, rules *network.Rules) error {
	return r.on(context.Background(), id, onNetwork, func(rec *record) (*transition, error) {
		if len(asked.Headers) > 0 && !rec.Headers {
			return nil, &RefusedError{Reason: "rules need a certificate authority that programs in the sandbox trust from their start, and this one was made without rules: create a sandbox with network.rules"}
		}
		var changed Network // a new value: records that were handed out keep the old one
		if rec.Network != nil {
			changed = *rec.Network
		}
		changed.AllowOut, changed.DenyOut = asked.AllowOut, asked.DenyOut
		changed.NameServers, changed.Headers, changed.Proxy, changed.Ask = asked.NameServers, asked.Headers, asked.Proxy, asked.Ask
		rec.Network, rec.Egress = &changed, nil
		// As in the service, internet access of this request holds until a resume.
		later, err := rec.rules()
		rec.outdated = err == nil && !reflect.DeepEqual(later, rules)
		rec.instance.SetEgress(rules)
		return nil, nil
	})
}

// Asks returns the questions about a sandbox's outgoing connections. The sandbox may be paused.
// It returns a [*NotFoundError] if the sandbox does not exist.
func (r *Registry) Asks(id string) (*network.Asks, error) {
	var asks *network.Asks
	err := r.on(context.Background(), id, onGet, func(rec *record) (*transition, error) {
		asks = rec.asks
		return nil, nil
	})
	return asks, err
}

// enter takes a place for a sandbox before it is started, so that many requests at the
// same time do not start more sandboxes than are allowed.
func (r *Registry) enter(rec *record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.enterLocked(rec)
}

func (r *Registry) enterLocked(rec *record) error {
	switch {
	case r.closed:
		return ErrClosed
	case r.places >= r.options.MaxSandboxes:
		return &LimitError{r.options.MaxSandboxes}
	}
	r.places++
	rec.placed = true
	return nil
}

// leave is the reverse of enter.
func (r *Registry) leave(rec *record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaveLocked(rec)
}

func (r *Registry) leaveLocked(rec *record) {
	if rec.placed {
		r.places--
		rec.placed = false
	}
}

// add records a started sandbox. It reports false if the registry has been
// closed.
func (r *Registry) add(rec *record) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.beginLifeLocked(rec, rec.Lifetime)
	r.watchLocked(rec)
	r.records[rec.ID] = rec
	r.setLocked(rec, Running)
	return true
}

// beginLifeLocked sets the lifetime of a sandbox that begins to run, from now on.
func (r *Registry) beginLifeLocked(rec *record, lifetime time.Duration) {
	rec.StartedAt = r.nowLocked()
	rec.EndAt = rec.StartedAt.Add(min(lifetime, r.options.MaxLifetime))
}

func (r *Registry) snapshot(rec *record) Sandbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	return rec.Sandbox
}

func (r *Registry) findLocked(id string) (*record, error) {
	rec := r.records[id]
	if rec == nil {
		return nil, r.ended.of(id, r.nowLocked())
	}
	_ = r.noticeLocked(rec, nil)
	return rec, nil
}

// notFoundLocked returns the error for a sandbox that has a record, but is answered for as if it
// did not exist. The error says that the sandbox is paused, or why it ended if that is known. r.mu
// is held.
func (r *Registry) notFoundLocked(rec *record) error {
	if rec.State == Paused {
		return &NotFoundError{ID: rec.ID, Paused: true}
	}
	return r.ended.of(rec.ID, r.nowLocked())
}
