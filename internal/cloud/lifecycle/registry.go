package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/cloud/ordered"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
)

// Default limits of a cloud. For a limit that E2B's hosted service also has, the default is the value
// of the service.
const (
	DefaultMaxSandboxes = 100
	DefaultMaxLifetime  = 24 * time.Hour
	DefaultMaxFrozen    = 100
	DefaultMaxKept      = 10_000
)

// Options configure a [Registry].
type Options struct {
	MaxSandboxes int           // maximum number of sandboxes with a place; 0: DefaultMaxSandboxes
	MaxLifetime  time.Duration // longest lifetime of a sandbox; 0: DefaultMaxLifetime
	// MaxFrozen bounds the number of paused sandboxes whose processes are kept. MaxFrozenMemory bounds
	// the bytes of the memory of all these sandboxes. When a limit is reached, the memory of a further
	// sandbox can only be kept in the store: the store must be durable, and the memory must be saved
	// there. A zero MaxFrozen means DefaultMaxFrozen. A zero MaxFrozenMemory means that there is no
	// limit.
	MaxFrozen       int
	MaxFrozenMemory int64
	// MaxKept bounds the number of sandboxes whose files are kept; 0 means DefaultMaxKept. When this
	// number is reached, a requested pause is refused. A pause at the end of a lifetime fails, so that
	// the sandbox lives for some more minutes and then ends.
	MaxKept int
	// Secure gives every sandbox an access token, regardless of its request. TrafficTokens gives every
	// sandbox a traffic token, even if its ports are public.
	Secure, TrafficTokens bool
	Logger                *slog.Logger // nil: no log

	// Store keeps the data for resuming paused sandboxes: records, files and saved memory. The caller
	// closes the store after it has closed the registry.
	Store *store.Store

	// Layers keeps the layers with which sandboxes begin. If it is nil, layers are kept in
	// Store, and each sandbox copies its layers. The caller must call Layers.Sweep after New.
	Layers *layers.Set

	// Launch starts a sandbox. The registry closes every sandbox that Launch returned: on
	// request, when the sandbox's lifetime is over, or in Registry.Close.
	Launch func(ctx context.Context, spec Spec) (Instance, error)
	// IDOf returns the id of the sandbox that a request with an idempotency key makes, so that no two
	// servers of an engine make two sandboxes for the same request. If a server has made it already,
	// Launch returns [engine.ErrExists], and the sandbox is adopted. "" or a nil IDOf means a random
	// id.
	IDOf func(key string) string
	// Ended is called when a sandbox no longer exists. It is also called for a sandbox that could not
	// be launched. nil means no call.
	Ended func(id string)
}

// Registry contains the records of all sandboxes. It is safe for concurrent use. The caller must
// close the registry.
type Registry struct {
	options Options
	store   *store.Store
	layers  *layers.Set

	wake chan struct{}  // gets a token when a deadline has changed
	stop chan struct{}  // closed by Close
	work sync.WaitGroup // counts the goroutines of the evictor and of transitions, and those that watch instances

	mu       sync.Mutex
	records  map[string]*record
	running  map[string]*record // records in the state Running
	up, down []*record          // up: sandboxes that run; down: all others; each is ordered by Position
	ended    endedLog
	events   *EventLog
	attempts attempts
	adopted  chan struct{} // closed and replaced when a sandbox of another server is adopted
	places   int           // number of sandboxes with a place
	frozen   ledger        // paused sandboxes that keep their processes
	kept     int           // number of sandboxes whose files are kept
	clock    *clock
	closed   bool
}

// ledger counts sandboxes, and adds up their bytes of memory.
type ledger struct {
	sandboxes int
	memory    int64
}

// record is the record of a sandbox. Registry.mu guards all fields, except those that never
// change: the sandbox's id and tokens, and asks.
type record struct {
	Sandbox
	instance   Instance    // nil if the sandbox is paused without processes, or about to be resumed
	transition *transition // nil if the state is not changing
	placed     bool        // counted in Registry.places
	frozen     *int64      // bytes counted in Registry.frozen; nil if the sandbox is not counted there
	kept       *kept       // saved files and memory of the latest pause; nil: none
	base       layers.Base // layers of the sandbox; set before other goroutines can access the record
	asks       *network.Asks
	once       *once      // request that made the sandbox; nil if it had no idempotency key
	storing    sync.Mutex // held while the record is stored with a Lasting instance; locked before Registry.mu
	fell       end        // reason for the end of a sandbox that returns to its latest pause; reset when it is paused
	outdated   bool       // the network rules of the instance differ from those of Request

	list     *[]*record       // list that contains the record: Registry.up or Registry.down; nil if neither contains it
	position ordered.Position // position in that list

	// began and until are StartedAt and EndAt of a running sandbox, as values of clock.since. They decide
	// about the lifetime.
	began, until time.Duration

	// unpaused is the error of a failed automatic pause. The pause is retried until retryUntil, a value of
	// clock.since; 0: no pause has failed.
	unpaused   error
	retryUntil time.Duration

	use    *Use          // latest use; nil: no idle limit
	asking chan struct{} // closed when the sandbox has said whether it is busy; nil: it is not being asked
}

// becomeLocked copies from sb to the record all fields of the sandbox that may change, except the
// state, which setLocked changes.
func (r *Registry) becomeLocked(rec *record, sb Sandbox) {
	rec.Request, rec.StartedAt, rec.EndAt = sb.Request, sb.StartedAt, sb.EndAt
	r.timeLocked(rec)
	rec.Memory, rec.Unresponsive = sb.Memory, sb.Unresponsive
}

// New returns a registry with the sandboxes that the store contains. The caller must close the
// registry.
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
	if o.IDOf == nil {
		o.IDOf = func(string) string { return "" }
	}
	if o.Layers == nil {
		o.Layers = layers.Open(layers.Options{Store: o.Store, Logger: o.Logger})
	}
	clock := newClock()
	r := &Registry{
		options:  o,
		store:    o.Store,
		layers:   o.Layers,
		wake:     make(chan struct{}, 1),
		stop:     make(chan struct{}),
		records:  map[string]*record{},
		events:   newEventLog(),
		running:  map[string]*record{},
		attempts: attempts{byKey: map[string]*attempt{}},
		adopted:  make(chan struct{}),
		clock:    clock,
		ended:    endedLog{clock: clock},
	}
	r.restore()
	r.work.Go(r.evictor)
	return r
}

// MaxLifetime returns the longest possible lifetime of a sandbox.
func (r *Registry) MaxLifetime() time.Duration { return r.options.MaxLifetime }

// Count returns the number of running sandboxes and the number of all other sandboxes.
func (r *Registry) Count() (running, paused int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.up), len(r.down)
}

// MaxSandboxes returns the maximum number of sandboxes that run at the same time.
func (r *Registry) MaxSandboxes() int { return r.options.MaxSandboxes }

// Create starts a sandbox and records it. The lifetime of the sandbox begins when it runs.
// Errors are [ErrClosed], a [*LimitError], a [*RefusedError], a [*LaunchError] and
// [layers.ErrGone]. If ctx ends, Create returns the error of ctx, and nothing of the sandbox is
// left.
func (r *Registry) Create(ctx context.Context, q Request) (Sandbox, error) {
	return r.create(ctx, q, nil)
}

func (r *Registry) create(ctx context.Context, q Request, o *once) (Sandbox, error) {
	base, err := r.layers.Use(q.Layers...)
	if err != nil {
		return Sandbox{}, err
	}
	q.Layers = base.IDs
	rec := &record{Sandbox: r.newSandbox(q, r.idFor(o)), base: base, once: o, asks: new(network.Asks)}
	rec.use = r.newUse(&rec.Request)
	if err := r.launch(ctx, rec); err != nil {
		base.Release()
		if errors.Is(err, engine.ErrExists) && o != nil {
			return r.join(ctx, rec.ID, o)
		}
		return Sandbox{}, err
	}
	base.Copied()
	if err = r.begin(ctx, rec); err != nil {
		err = &LaunchError{Err: err}
	}
	if gone := ctx.Err(); gone != nil { // no client would know of this sandbox
		err = gone
	}
	if err != nil {
		r.discard(rec, abandoned)
		return Sandbox{}, err
	}
	if rec.outlives() == nil {
		r.noteRunning(rec.ID)
	}
	if !r.add(rec) {
		r.discard(rec, closed)
		return Sandbox{}, ErrClosed
	}
	r.options.Logger.InfoContext(ctx, "sandbox created", "sandbox", rec.ID, "template", q.Template.Alias)
	return r.snapshot(rec), nil
}

// launch starts the sandbox of a new record, and gives the sandbox a place.
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
		if !errors.Is(err, engine.ErrExists) {
			r.options.Ended(rec.ID)
		}
		return &LaunchError{Err: refusal(err, "make the snapshot anew on this machine, or build a template from it, which has its files")}
	}
	return nil
}

// Get returns the record of a sandbox. If the sandbox does not exist, the error is a
// [*NotFoundError].
func (r *Registry) Get(id string) (Sandbox, error) {
	var sb Sandbox
	err := r.handle(context.Background(), id, onGet, func(rec *record) (*transition, error) {
		sb = rec.Sandbox
		return nil, nil
	})
	return sb, err
}

// List returns the records of all sandboxes for which match returns true, in no particular order.
// match must be quick, and must not use the registry. [Registry.Page] returns a part of the
// sandboxes, in order.
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

// Kill ends a sandbox in any state, and removes the sandbox's files. When it returns, all
// processes in the sandbox are dead. It returns a [*NotFoundError] if the sandbox does not
// exist. After any other error, the sandbox is paused and can be killed again.
func (r *Registry) Kill(id string) error {
	var kill func() error
	err := r.handle(context.Background(), id, onKill, func(rec *record) (*transition, error) {
		before := rec.transition
		r.takeLocked(rec, killed)
		r.work.Add(1) // Close waits for it
		kill = func() error { defer r.work.Done(); return r.kill(rec, before) }
		return nil, nil
	})
	if err != nil {
		return err
	}
	return kill()
}

// SetEgress replaces a running sandbox's rules for outgoing connections. From asked, it records the
// fields for outgoing connections and ignores the fields for incoming connections. It returns a
// [*NotFoundError] if the sandbox does not exist or is paused, and a [*StateError] if its state is
// changing. If asked has rules for hosts and the sandbox was created without, or if the sandbox could
// not be resumed with the rules, SetEgress returns a [*RefusedError].
func (r *Registry) SetEgress(id string, asked Network, rules *network.Rules) error {
	return r.recorded(context.Background(), id, func() error { return r.setEgress(id, asked, rules) })
}

func (r *Registry) setEgress(id string, asked Network, rules *network.Rules) error {
	return r.handle(context.Background(), id, onNetwork, func(rec *record) (*transition, error) {
		if err := rec.instance.Check(engine.NetworkRules); err != nil {
			return nil, err
		}
		if len(asked.Headers)+len(asked.Requests) > 0 && !rec.Headers {
			return nil, &RefusedError{Reason: "rules need a certificate authority that programs in the sandbox trust from their start, and this one was made without rules: create a sandbox with network.rules"}
		}
		var changed Network // a new value, because returned records refer to the old one
		if rec.Network != nil {
			changed = *rec.Network
		}
		changed.AllowOut, changed.DenyOut = asked.AllowOut, asked.DenyOut
		changed.NameServers, changed.Headers, changed.Requests, changed.Proxy, changed.Ask = asked.NameServers, asked.Headers, asked.Requests, asked.Proxy, asked.Ask
		// As on the service, the internet access of this request lasts until the next resume.
		later, err := changed.Rules(rec.Internet)
		if err != nil {
			return nil, &RefusedError{Reason: fmt.Sprintf("the sandbox could not be resumed with these rules, because they are invalid without allow_internet_access, which lasts until the next resume: %v", err)}
		}
		rec.Network, rec.Egress, rec.outdated = &changed, nil, !reflect.DeepEqual(later, rules)
		rec.instance.SetEgress(rules)
		r.eventLocked(rec, Event{Type: EventUpdated, Message: "network"})
		return nil, nil
	})
}

// Asks returns the questions about a sandbox's outgoing connections. The sandbox may be paused. If
// the sandbox does not exist, the error is a [*NotFoundError].
func (r *Registry) Asks(id string) (*network.Asks, error) {
	var asks *network.Asks
	err := r.handle(context.Background(), id, onGet, func(rec *record) (*transition, error) {
		asks = rec.asks
		return nil, nil
	})
	return asks, err
}

// enter reserves a place for a sandbox before it is started. Without this reservation, concurrent
// requests could start more sandboxes than are allowed.
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

// leave frees the place that enter reserved.
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

// add records a started sandbox. It returns false if the registry has been closed.
func (r *Registry) add(rec *record) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	if rec.StartedAt.IsZero() {
		r.beginLifeLocked(rec, rec.Lifetime)
	}
	r.watchLocked(rec)
	r.records[rec.ID] = rec
	r.setLocked(rec, Running)
	r.eventLocked(rec, Event{Type: EventCreated})
	return true
}

func (r *Registry) snapshot(rec *record) Sandbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	return rec.Sandbox
}

func (r *Registry) findLocked(id string) (*record, error) {
	rec := r.records[id]
	if rec == nil {
		return nil, r.ended.notFound(id)
	}
	_ = r.noticeLocked(rec, nil)
	return rec, nil
}

// notFoundLocked returns the error for a sandbox that has a record, but is treated as if it did not
// exist. If the sandbox is paused, the error reports this. Otherwise the error contains the reason
// for the sandbox's end, if the reason is known. The caller holds r.mu.
func (r *Registry) notFoundLocked(rec *record) error {
	if rec.State == Paused {
		return &NotFoundError{ID: rec.ID, Paused: true}
	}
	return r.ended.notFound(rec.ID)
}
