package lifecycle

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
)

// Lasting is an [Instance] that can outlive the registry. The registry stores the sandbox's record
// with the instance. [Registry.Close] lets the instance go on.
type Lasting interface {
	Instance
	// Keep, Kept and Leave are described in [engine.Lasting].
	Keep(ctx context.Context, r engine.Record) error
	Kept() (engine.Record, <-chan struct{})
	Leave() error
	// Follow makes the instance unreachable or reachable, because another server has paused or resumed
	// the sandbox. It is called while the sandbox is not changing here.
	Follow(paused bool)
}

// lingering is the time for which the engine lets a sandbox with AutoPause run after the end of the
// sandbox's lifetime. It is needed because only a server can pause the sandbox.
const lingering = 24 * time.Hour

// carriedVersion is the version of the format of carried.
const carriedVersion = 1

// carried is the content of the part of a record that the engine seals. The field names of carried,
// [Request], [Template] and [Network] are part of the format.
type carried struct {
	Version      int
	Request      Request
	AccessToken  string `json:",omitempty"`
	TrafficToken string `json:",omitempty"`
	Once         *once  `json:",omitempty"`
}

// once identifies the create request that made a sandbox, so that a repeated request finds the
// sandbox.
type once struct {
	Key     string
	Request [sha256.Size]byte
}

// outlives returns the instance of rec, or nil if the instance cannot outlive the registry.
func (rec *record) outlives() Lasting {
	l, _ := rec.instance.(Lasting)
	return l
}

// engineRecord returns the record that the engine stores for a sandbox.
func (sb *Sandbox) engineRecord(o *once) (engine.Record, error) {
	sealed, err := json.Marshal(carried{carriedVersion, sb.Request, sb.AccessToken, sb.TrafficToken, o})
	r := engine.Record{Template: sb.Template.Alias, Metadata: sb.Metadata, StartedAt: sb.StartedAt, EndAt: sb.EndAt, Sealed: sealed}
	if r.Paused = sb.State == Paused; !r.Paused && sb.AutoPause {
		r.Linger = lingering
	}
	return r, err
}

// sandboxOf returns the sandbox of a record that the engine has kept.
func sandboxOf(id string, r engine.Record) (Sandbox, *once, error) {
	var c carried
	if err := json.Unmarshal(r.Sealed, &c); err != nil {
		return Sandbox{}, nil, err
	}
	switch {
	case c.Version < 1 || c.Version > carriedVersion:
		return Sandbox{}, nil, fmt.Errorf("its version is %d, and this program knows up to %d", c.Version, carriedVersion)
	case !validID(id) || c.Request.Template.ID == "":
		return Sandbox{}, nil, errors.New("it has no id or no template")
	}
	state := Running
	if r.Paused {
		state = Paused
	}
	return Sandbox{
		ID: id, Request: c.Request, AccessToken: c.AccessToken, TrafficToken: c.TrafficToken,
		State: state, StartedAt: r.StartedAt, EndAt: r.EndAt,
	}, c.Once, nil
}

// Adopt adds to the registry a sandbox that another server made. kept is the record that the
// engine has stored, and open returns the sandbox's instance. The sandbox counts even if there are
// then more than [Options].MaxSandboxes. It has no idle limit, because no server sees all uses of
// a sandbox that several servers serve. If the registry already has the sandbox, Adopt does
// nothing. After an error, the sandbox is unchanged.
func (r *Registry) Adopt(id string, kept engine.Record, open func(Spec) (Lasting, error)) error {
	sb, o, err := sandboxOf(id, kept)
	if err != nil {
		return err
	}
	rec := &record{Sandbox: sb, once: o, asks: new(network.Asks)}
	spec, err := rec.spec("", "")
	if err != nil {
		return err
	}
	r.mu.Lock()
	_, known := r.records[id]
	over := r.closed
	r.mu.Unlock()
	switch {
	case known:
		return nil
	case over:
		return ErrClosed
	}
	instance, err := open(spec)
	if err != nil {
		return err
	}
	rec.instance = instance
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errors.Join(ErrClosed, instance.Leave())
	}
	r.timeLocked(rec)
	if sb.State == Running {
		r.places++
		rec.placed = true
	}
	r.records[id] = rec
	r.watchLocked(rec)
	r.setLocked(rec, sb.State)
	close(r.adopted)
	r.adopted = make(chan struct{})
	if o != nil && r.attempts.byKey[o.Key] == nil {
		a := &attempt{request: o.Request, done: make(chan struct{}), sb: &sb}
		close(a.done)
		r.attempts.byKey[o.Key] = a
		r.attempts.rememberLocked(o.Key)
	}
	r.options.Logger.InfoContext(context.Background(), "sandbox of another server adopted", "sandbox", id, "template", sb.Template.Alias)
	return nil
}

// idFor returns the id of a new sandbox.
func (r *Registry) idFor(o *once) string {
	if o != nil {
		if id := r.options.IDOf(o.Key); id != "" {
			return id
		}
	}
	return newID()
}

// joinTimeout bounds the wait for the adoption of a sandbox that another server has made.
const joinTimeout = 30 * time.Second

// join waits until the sandbox that another server has made for the same request is adopted.
func (r *Registry) join(ctx context.Context, id string, o *once) (Sandbox, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, joinTimeout, &LaunchError{Err: fmt.Errorf("%w, and it has not been seen for %v", engine.ErrExists, joinTimeout)})
	defer cancel()
	for {
		r.mu.Lock()
		adopted, rec := r.adopted, r.records[id]
		r.mu.Unlock()
		switch {
		case rec == nil:
		case rec.once == nil || *rec.once != *o:
			return Sandbox{}, ErrKeyReused
		default:
			return r.snapshot(rec), nil
		}
		select {
		case <-adopted:
		case <-r.stop:
			return Sandbox{}, ErrClosed
		case <-ctx.Done():
			r.options.Ended(id)
			return Sandbox{}, context.Cause(ctx)
		}
	}
}

// begin begins the lifetime of a sandbox that can outlive the registry, and stores the sandbox's
// record. For other sandboxes, add begins the lifetime.
func (r *Registry) begin(ctx context.Context, rec *record) error {
	if rec.outlives() == nil {
		return nil
	}
	r.mu.Lock()
	r.beginLifeLocked(rec, rec.Lifetime)
	r.mu.Unlock()
	return r.storeRecord(ctx, rec)
}

// recorded changes the record of a sandbox with the function change. If the sandbox can outlive the
// registry, recorded then stores the record. Until recorded returns, changes that other servers made
// to the same sandbox are not taken over.
func (r *Registry) recorded(ctx context.Context, id string, change func() error) error {
	r.mu.Lock()
	rec := r.records[id]
	lasting := rec != nil && rec.outlives() != nil
	r.mu.Unlock()
	if !lasting {
		return change()
	}
	rec.storing.Lock()
	defer rec.storing.Unlock()
	if err := change(); err != nil {
		return err
	}
	err := r.storeRecord(ctx, rec)
	if errors.Is(err, engine.ErrGone) {
		return &NotFoundError{ID: id}
	}
	return err
}

// storeRecord stores the record of a sandbox with the instance, if the record has changed.
func (r *Registry) storeRecord(ctx context.Context, rec *record) error {
	return r.storeAs(ctx, rec, r.snapshot(rec))
}

// storeAs stores sb as the record of a sandbox, if it differs from the stored one.
func (r *Registry) storeAs(ctx context.Context, rec *record, sb Sandbox) error {
	lasting := rec.outlives() // no other instance ever takes its place
	kept, err := sb.engineRecord(rec.once)
	if stored, _ := lasting.Kept(); err == nil && !stored.Equal(kept) {
		err = lasting.Keep(ctx, kept)
	}
	if err != nil {
		return fmt.Errorf("lifecycle: the record of sandbox %s cannot be stored: %w", sb.ID, err)
	}
	return nil
}

// follow takes over the changes that other servers make to the record of a sandbox, until the
// instance ends.
func (r *Registry) follow(rec *record, instance Lasting) {
	for {
		_, changed := instance.Kept()
		r.takeOver(rec, instance)
		select {
		case <-changed:
		case <-instance.Done():
			return
		}
	}
}

// takeOver makes the registry's record of a sandbox equal to the record stored with the instance.
// takeOver and requests that change the record wait for each other. If the stored record cannot be
// read, takeOver changes nothing.
func (r *Registry) takeOver(rec *record, instance Lasting) {
	r.mu.Lock()
	changing := rec.transition
	r.mu.Unlock()
	if changing != nil {
		<-changing.done
	}
	rec.storing.Lock()
	defer rec.storing.Unlock()
	kept, _ := instance.Kept()
	if kept.StartedAt.IsZero() {
		return // it is being created
	}
	sb, _, err := sandboxOf(rec.ID, kept)
	if err != nil {
		r.options.Logger.WarnContext(context.Background(), "the record of a sandbox cannot be read", "sandbox", rec.ID, "error", err)
		return
	}
	if r.become(rec, sb, kept) {
		instance.Follow(sb.State == Paused)
	}
}

// become gives a sandbox that is not changing the record that another server stored, unless it has this
// one. It reports whether the other server paused or resumed the sandbox.
func (r *Registry) become(rec *record, sb Sandbox, kept engine.Record) (turned bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	own, err := rec.engineRecord(rec.once)
	if settled := rec.State == Running || rec.State == Paused; !settled || err != nil || own.Equal(kept) {
		return false
	}
	turned = rec.State != sb.State
	r.becomeLocked(rec, sb)
	switch {
	case !turned: // but it may have been paused and resumed meanwhile
		r.placeLocked(rec)
		r.wakeEvictor()
		return false
	case sb.State == Paused:
		r.leaveLocked(rec)
	default: // it runs, even if there are more than Options.MaxSandboxes
		r.places++
		rec.placed = true
	}
	r.setLocked(rec, sb.State)
	return true
}

// release lets a sandbox go on without this registry.
func (r *Registry) release(rec *record, instance Lasting) {
	if err := instance.Leave(); err != nil {
		r.options.Logger.ErrorContext(context.Background(), "sandbox not left cleanly", "sandbox", rec.ID, "error", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.records, rec.ID)
	r.placeLocked(rec)
	r.leaveLocked(rec)
}
