package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
)

// watchLocked ends a sandbox when its instance ends by itself.
func (r *Registry) watchLocked(rec *record) {
	instance := rec.instance
	if l := rec.outlives(); l != nil {
		r.work.Go(func() { r.follow(rec, l) })
	}
	r.work.Go(func() {
		<-instance.Done()
		r.mu.Lock()
		defer r.mu.Unlock()
		_ = r.noticeLocked(rec, nil)
	})
}

// over reports whether the instance of a sandbox has ended and has not been removed yet.
func (rec *record) over() bool { return rec.instance != nil && rec.instance.Err() != nil }

// noticeLocked ends a sandbox after the sandbox's instance has ended. While a transition of the
// sandbox is in progress, noticeLocked does not end the sandbox; the end of the transition does.
// Every lookup of a sandbox calls noticeLocked first, so that no client is informed that a sandbox
// runs after the engine has learned of its end. failed is the error of the transition that has just
// ended. If the registry itself closed an instance that could not continue, failed is the reason for
// the end. noticeLocked returns the error for callers that need the sandbox, or nil if the instance
// has not ended.
func (r *Registry) noticeLocked(rec *record, failed error) *NotFoundError {
	r.followClockLocked(rec)
	if r.closed || rec.State == Killing || rec.transition != nil || !rec.over() {
		return nil
	}
	why := rec.instance.Err()
	if errors.Is(why, engine.ErrClosed) && failed != nil {
		why = failed
		if save, ok := errors.AsType[*SaveError](failed); ok {
			why = save.Err
		}
	}
	e := death(why)
	if errors.Is(why, engine.ErrElsewhere) {
		e = killed
	}
	if rec.outlives() != nil && rec.State != Paused && !r.nowLocked().Before(rec.EndAt) { // another server or the engine was faster
		e = expired
	}
	gone := &NotFoundError{ID: rec.ID, Reason: e.reason, EndedAt: r.nowLocked(), How: e.how}
	if rec.kept != nil {
		gone.How += ", and is paused as it was at its latest pause"
	}
	r.endLocked(rec, e)
	return gone
}

// await is called after an operation of instance has failed. The failure may be the first sign that
// the instance has ended. So await waits until it is known whether it has ended.
func await(ctx context.Context, instance Instance) { _ = instance.Healthy(ctx) }

// expireLocked pauses or ends a running sandbox. idle means that the idle limit of the sandbox is
// reached; otherwise, its lifetime is over. expireLocked returns a channel that is closed when the
// sandbox is paused or has ended.
func (r *Registry) expireLocked(rec *record, idle bool) <-chan struct{} {
	switch {
	case !rec.AutoPause && idle:
		return r.endLocked(rec, unusedEnd(rec.Idle))
	case !rec.AutoPause:
		return r.endLocked(rec, expired)
	case !idle && rec.retryUntil > 0 && r.clock.since() >= rec.retryUntil:
		return r.endLocked(rec, end{Expired, fmt.Sprintf("%s, and it could not be paused: %v", expired.how, rec.unpaused)})
	}
	return r.pauseLocked(rec, pause{PauseOptions: PauseOptions{DropMemory: !rec.KeepMemory}, unasked: true, idle: idle}).done
}

// endLocked ends a sandbox that no client killed. If the sandbox's files are kept, it becomes paused
// again, in the state of its latest pause. The returned channel is closed when the sandbox has
// ended.
func (r *Registry) endLocked(rec *record, e end) <-chan struct{} {
	instance := rec.instance
	if rec.kept != nil {
		rec.fell = e
		rec.instance = nil // callers that ask for the state do not wait for the clean-up
		return r.beginLocked(rec, Pausing, func(ctx context.Context) (func() State, error) {
			r.close(rec.ID, instance)
			r.forgetRunning(ctx, rec.ID)
			r.options.Logger.InfoContext(ctx, "sandbox ended, and is paused as it was at its latest pause", "sandbox", rec.ID, "how", e.how)
			return func() State { r.revertLocked(rec); return Paused }, nil
		}).done
	}
	r.takeLocked(rec, e)
	done := make(chan struct{})
	r.work.Go(func() {
		defer close(done)
		r.discard(rec, e)
	})
	return done
}

// revertLocked returns a sandbox without processes to the state of its latest pause.
func (r *Registry) revertLocked(rec *record) {
	r.leaveLocked(rec)
	r.thawLocked(rec)
	r.becomeLocked(rec, rec.kept.sandbox)
	rec.instance, rec.retryUntil = nil, 0
	r.setLocked(rec, Paused)
}

// takeLocked hides a sandbox from all callers. The caller must call discard.
func (r *Registry) takeLocked(rec *record, e end) {
	if rec.transition != nil {
		rec.transition.cancel()
	}
	r.setLocked(rec, Killing)
	r.ended.add(rec.ID, e)
	r.eventLocked(rec, Event{Type: EventKilled, Reason: e.reason, Message: e.how})
}

// kill ends a sandbox after takeLocked, and removes the sandbox's files from the store. It first
// waits for the end of the transition "before".
func (r *Registry) kill(rec *record, before *transition) error {
	if before != nil {
		<-before.done
	}
	if rec.kept == nil {
		r.discard(rec, killed)
		return nil
	}
	if rec.instance != nil {
		r.close(rec.ID, rec.instance)
	}
	err := r.store.Delete(store.Sandboxes, rec.ID)
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.revertLocked(rec)
		r.eventLocked(rec, Event{Type: EventPaused, Reason: killed.reason, Message: err.Error()})
		return fmt.Errorf("lifecycle: the sandbox has ended, but its files cannot be removed: %w", err)
	}
	r.discard(rec, killed)
	return nil
}

// discard closes the instance of a sandbox and frees the sandbox's place. The sandbox was hidden by
// takeLocked or was never recorded.
func (r *Registry) discard(rec *record, e end) {
	if rec.instance != nil {
		r.close(rec.ID, rec.instance)
	}
	ctx := context.Background()
	r.mu.Lock()
	if r.records[rec.ID] == rec {
		delete(r.records, rec.ID)
		r.placeLocked(rec)
	}
	r.ended.add(rec.ID, e)
	if rec.kept != nil {
		r.kept--
	}
	r.leaveLocked(rec)
	r.thawLocked(rec)
	r.mu.Unlock()
	if rec.base.Release != nil && (e != closed || rec.kept == nil) { // after a restart, a paused sandbox needs its layers
		rec.base.Release()
	}
	if e != closed { // the next server reports that running sandboxes ended with this server
		r.forgetRunning(ctx, rec.ID)
	}
	r.options.Logger.InfoContext(ctx, "sandbox ended", "sandbox", rec.ID, "how", e.how)
	r.options.Ended(rec.ID)
}

func (r *Registry) close(id string, instance Instance) {
	if err := instance.Close(); err != nil {
		r.options.Logger.ErrorContext(context.Background(), "sandbox not closed cleanly", "sandbox", id, "error", err)
	}
}

const (
	// closeDeadline bounds the time that Close waits for pauses. closers bounds the number of
	// concurrent pauses.
	closeDeadline = time.Minute
	closers       = 2
)

// Close ends every sandbox, except those that are [Lasting], and waits until all have ended. If the store is durable, it first
// pauses sandboxes with AutoPause, so that the next registry has them. These pauses copy the files.
// If the engine can save memory, they also copy the memory. They take a minute at most. After
// Close, Create returns [ErrClosed]. Close is idempotent.
func (r *Registry) Close() error {
	r.mu.Lock()
	first := !r.closed
	r.closed = true
	all := make([]*record, 0, len(r.records))
	for _, rec := range r.records {
		all = append(all, rec)
	}
	r.mu.Unlock()
	if !first {
		r.work.Wait()
		return nil
	}
	close(r.stop)
	ctx, cancel := context.WithTimeout(context.Background(), closeDeadline)
	defer cancel()
	free := make(chan struct{}, closers)
	for _, rec := range all {
		r.work.Go(func() {
			r.settle(ctx, rec)
			r.save(ctx, rec, free)
			r.shut(rec)
		})
	}
	r.work.Wait()
	return nil
}

// settle waits until the state of a sandbox no longer changes. It cancels a transition whose
// result would be lost. When ctx ends, it cancels any transition.
func (r *Registry) settle(ctx context.Context, rec *record) {
	r.mu.Lock()
	t := rec.transition
	useful := rec.State == Pausing && r.store.Durable() // the next registry can use the result
	r.mu.Unlock()
	if t == nil {
		return
	}
	if !useful {
		t.cancel()
	}
	select {
	case <-t.done:
	case <-ctx.Done():
		t.cancel()
		<-t.done
	}
}

// save pauses a sandbox to the store, if the sandbox must outlive the registry. It first waits for
// room in the channel free, which bounds the number of concurrent pauses. It saves memory only in
// the first half of closeDeadline.
func (r *Registry) save(ctx context.Context, rec *record, free chan struct{}) {
	r.mu.Lock()
	wanted := rec.AutoPause && r.store.Durable()
	r.mu.Unlock()
	if !wanted {
		return
	}
	select {
	case free <- struct{}{}:
		defer func() { <-free }()
	case <-ctx.Done():
		return
	}
	r.mu.Lock()
	if rec.State == Running && rec.outlives() == nil && !rec.instance.Suspends() { // the home of one that suspends ends with this server
		deadline, _ := ctx.Deadline()
		r.pauseLocked(rec, pause{
			PauseOptions: PauseOptions{DropMemory: !rec.KeepMemory}, unasked: true, ending: true,
			memoryUntil: deadline.Add(-closeDeadline / 2),
		})
	}
	r.mu.Unlock()
	r.settle(ctx, rec)
}

// shut ends a sandbox because the registry is closed. If the sandbox can outlive the registry, shut
// lets it go on instead. The files of the sandbox are kept.
func (r *Registry) shut(rec *record) {
	r.mu.Lock()
	ending, lasting := rec.State == Killing, rec.outlives()
	r.setLocked(rec, Killing)
	r.mu.Unlock()
	switch {
	case ending || rec.instance == nil:
	case lasting != nil && lasting.Err() == nil:
		r.release(rec, lasting)
	default:
		r.discard(rec, closed)
	}
}
