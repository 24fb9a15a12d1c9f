package lifecycle

import (
	"context"
	"fmt"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// PauseOptions are the options of a pause.
type PauseOptions struct {
	DropMemory     bool // keep only the files, and end the processes
	RequireHealthy bool // fail if envd does not answer; with DropMemory, this is always required
}

// Pause pauses a running sandbox. If a pause has already begun, Pause waits for the end of that
// pause. After an [ErrUnhealthy], a [*FrozenLimitError], a [*KeptLimitError], a [*SaveError] or an
// error of the instance, the sandbox continues to run. Other errors are a [*NotFoundError], a
// [*StateError] and [ErrClosed]. If ctx ends, Pause returns the error of ctx, and the pause
// continues.
func (r *Registry) Pause(ctx context.Context, id string, o PauseOptions) error {
	return r.handle(ctx, id, onPause, func(rec *record) (*transition, error) {
		return r.pauseLocked(rec, pause{PauseOptions: o}), nil
	})
}

// pause describes a pause that has begun.
type pause struct {
	PauseOptions
	// unasked marks an automatic pause. If the memory is too large or cannot be saved, or if envd does
	// not answer, an automatic pause keeps only the files.
	unasked bool
	// idle marks an automatic pause because of the idle limit. If the pause fails, the sandbox counts as
	// used, and is paused when it reaches the limit again.
	idle bool
	// ending means that the server ends, so that no processes are kept.
	ending bool
	// saveMemory means that the memory is also saved in the store. memoryUntil is the time by which
	// the memory must be saved completely. Otherwise the memory is not saved. A zero memoryUntil
	// means no time limit.
	saveMemory  bool
	memoryUntil time.Time
}

// pauseLocked starts to pause a running sandbox.
func (r *Registry) pauseLocked(rec *record, p pause) *transition {
	sb, instance := rec.Sandbox, rec.instance
	return r.beginLocked(rec, Pausing, func(ctx context.Context) (func() State, error) {
		sb.EndAt, sb.State, sb.Memory = r.now(), Paused, !p.DropMemory && !p.ending
		k, err := r.pause(ctx, rec, &sb, instance, p)
		if err != nil {
			await(ctx, instance)
			r.options.Logger.WarnContext(ctx, "sandbox not paused", "sandbox", sb.ID, "error", err)
			return func() State { return r.runOnLocked(rec, p, err) }, err
		}
		memory := sb.Memory || k != nil && k.sandbox.Memory
		r.options.Logger.InfoContext(ctx, "sandbox paused", "sandbox", sb.ID, "memory", memory)
		return func() State {
			r.leaveLocked(rec)
			r.becomeLocked(rec, sb)
			rec.retryUntil = 0
			if k != nil {
				rec.kept = k
			}
			if !sb.Memory && !instance.Suspends() {
				rec.instance, rec.Memory = nil, memory
			}
			return Paused
		}, nil
	})
}

// pause stops a sandbox. If necessary, it saves the sandbox's files and memory in the store. It
// records in sb whether the processes are kept and whether envd answered. After an error, the
// sandbox runs or has died.
func (r *Registry) pause(ctx context.Context, rec *record, sb *Sandbox, instance Instance, p pause) (_ *kept, err error) {
	unhealthy := instance.Healthy(ctx)
	if unhealthy != nil && !p.unasked && (p.RequireHealthy || p.DropMemory) {
		return nil, fmt.Errorf("%w: %w", ErrUnhealthy, unhealthy)
	}
	if err := r.checkPause(sb, instance, p); err != nil {
		return nil, err
	}
	p.saveMemory = !p.DropMemory && unhealthy == nil && r.savesMemory(instance)
	if instance.Suspends() {
		return nil, r.suspend(ctx, rec, sb, instance)
	}
	if sb.Memory {
		over := r.freeze(rec, instance.Memory())
		switch {
		case over == nil:
			defer func() {
				if err != nil {
					r.thaw(rec)
				}
			}()
		case p.saveMemory:
			sb.Memory = false
		case p.unasked:
			r.options.Logger.WarnContext(ctx, "sandbox paused without its memory", "sandbox", sb.ID, "error", over)
			sb.Memory = false
		default:
			return nil, over
		}
	}
	sb.Unresponsive = sb.Memory && unhealthy != nil
	if err := instance.Pause(ctx); err != nil {
		return nil, err
	}
	if sb.Memory && !r.outlasts(instance) {
		return nil, nil
	}
	k, err := r.keep(ctx, rec, *sb, instance, p)
	if err == nil && !sb.Memory {
		r.mu.Lock()
		rec.instance = nil // from here on, its end is not reported as a death
		r.mu.Unlock()
		r.close(sb.ID, instance)
	}
	if err != nil && ctx.Err() == nil {
		if failed := instance.Resume(ctx); failed != nil {
			err = fmt.Errorf("%w; it cannot run on: %w", err, failed)
			r.close(sb.ID, instance) // then the caller's transition ends the sandbox
		}
	}
	return k, err
}

// checkPause returns an error if the engine does not support the pause. If the engine cannot keep
// the memory, an automatic pause is still allowed, and does not keep the memory.
func (r *Registry) checkPause(sb *Sandbox, instance Instance, p pause) error {
	if instance.Suspends() {
		sb.Memory = false
		return nil
	}
	if sb.Memory {
		err := instance.Check(engine.Pauses)
		if err != nil && !p.unasked {
			return err
		}
		sb.Memory = err == nil
	}
	if !sb.Memory {
		return instance.Check(engine.SavedFiles)
	}
	return nil
}

// outlasts reports whether a pause with memory also saves the files of a sandbox for the next
// server.
func (r *Registry) outlasts(instance Instance) bool {
	return r.store.Durable() && instance.Check(engine.SavedFiles) == nil
}

// savesMemory reports whether the memory of a sandbox can be saved for the next server.
func (r *Registry) savesMemory(instance Instance) bool {
	return r.outlasts(instance) && instance.Check(engine.SavedMemory) == nil
}

// Bounds for retrying an automatic pause that failed.
const (
	retryAfter = time.Minute
	retryFor   = 10 * time.Minute
)

// runOnLocked returns the next state of a sandbox that could not be paused and therefore continues
// to run. An automatic pause is retried for a limited time.
func (r *Registry) runOnLocked(rec *record, p pause, err error) State {
	if !p.unasked || p.idle {
		return Running // setLocked notes a use
	}
	if rec.retryUntil == 0 {
		rec.retryUntil = r.clock.since() + retryFor
	}
	r.endInLocked(rec, retryAfter)
	rec.unpaused = err
	return Running
}

// freeze counts a sandbox as a paused sandbox whose processes are kept. bytes is the size of its
// memory. If a limit is reached, freeze returns an error.
func (r *Registry) freeze(rec *record, bytes int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.options
	over := o.MaxFrozenMemory > 0 && r.frozen.memory+bytes > o.MaxFrozenMemory
	if r.frozen.sandboxes >= o.MaxFrozen || over {
		return &FrozenLimitError{Max: o.MaxFrozen, Memory: o.MaxFrozenMemory}
	}
	rec.frozen = &bytes
	r.frozen.sandboxes++
	r.frozen.memory += bytes
	return nil
}

// thaw reverses freeze: the sandbox no longer counts.
func (r *Registry) thaw(rec *record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.thawLocked(rec)
}

func (r *Registry) thawLocked(rec *record) {
	if rec.frozen == nil {
		return
	}
	r.frozen.sandboxes--
	r.frozen.memory -= *rec.frozen
	rec.frozen = nil
}
