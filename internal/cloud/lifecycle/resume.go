package lifecycle

import (
	"context"
	"errors"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// ResumeOptions are the options of a resume.
type ResumeOptions struct {
	Lifetime time.Duration // begins when the sandbox runs
	// DropMemory boots the sandbox from its files. Processes that the pause kept are ended. Memory in
	// the store is kept until the next pause.
	DropMemory bool
	AutoPause  *bool // new value of AutoPause; nil: unchanged
}

// Connect extends the lifetime of a running sandbox, or resumes a paused sandbox. It returns the
// sandbox's record. resumed reports whether the sandbox was paused. The error is a
// [*NotFoundError], a [*StateError], a [*LimitError], a [*LaunchError], [ErrUnresponsive],
// [ErrClosed] or the error of ctx. If ctx ends, a resume that has begun continues.
func (r *Registry) Connect(ctx context.Context, id string, o ResumeOptions) (sb Sandbox, resumed bool, err error) {
	resumed = true
	err = r.handle(ctx, id, onConnect, func(rec *record) (*transition, error) {
		if rec.State != Running {
			return r.resumeLocked(rec, o)
		}
		resumed = false
		return nil, nil
	})
	if err != nil {
		return Sandbox{}, false, err
	}
	err = r.recorded(ctx, id, func() error {
		sb, err = r.connected(id, o.Lifetime)
		return err
	})
	return sb, resumed, err
}

// Resume resumes a paused sandbox like Connect. If the sandbox runs, the error is a
// [*StateError].
func (r *Registry) Resume(ctx context.Context, id string, o ResumeOptions) (Sandbox, error) {
	err := r.handle(ctx, id, onResume, func(rec *record) (*transition, error) { return r.resumeLocked(rec, o) })
	if err != nil {
		return Sandbox{}, err
	}
	var sb Sandbox
	err = r.recorded(ctx, id, func() (err error) {
		sb, err = r.connected(id, o.Lifetime)
		return err
	})
	return sb, err
}

// connected returns the record of a sandbox that ran a moment ago. It extends the sandbox's
// lifetime to at least lifetime. This is needed because the caller may have waited for a resume by
// another caller, which may have requested a shorter lifetime.
func (r *Registry) connected(id string, lifetime time.Duration) (Sandbox, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, err := r.findLocked(id)
	if err != nil {
		return Sandbox{}, err
	}
	if rec.State == Running {
		r.moveLocked(rec, lifetime, true)
		rec.noteUseLocked()
	}
	return rec.Sandbox, nil
}

// Bounds of a resume that a request causes.
const (
	wakeDeadline = time.Minute
	minWake      = 5 * time.Minute // shortest lifetime after the resume
)

// Wake resumes a sandbox for a request, and waits until the sandbox runs. The sandbox then has the
// lifetime with which it was created, but at least five minutes. If requests do not resume the
// sandbox, or if it does not exist, the error is [ErrAsleep]. If the state of the sandbox does not
// stop changing, the error is a [*StateError]. Other errors are a [*LimitError], the error of ctx,
// and the error of the resume.
func (r *Registry) Wake(ctx context.Context, id string) error {
	bounded, cancel := context.WithTimeout(ctx, wakeDeadline)
	defer cancel()
	err := r.handle(bounded, id, onWake, func(rec *record) (*transition, error) {
		switch {
		case rec.State == Running:
			return nil, nil
		case !rec.Wakes():
			return nil, ErrAsleep
		}
		return r.resumeLocked(rec, ResumeOptions{Lifetime: max(rec.Lifetime, minWake)})
	})
	if _, gone := errors.AsType[*NotFoundError](err); gone {
		return ErrAsleep
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return r.busy(id)
	}
	return err
}

// resumeDeadline bounds the time of a resume, regardless of the deadlines of its callers.
const resumeDeadline = 70 * time.Second

// resumeLocked starts to resume a paused sandbox.
func (r *Registry) resumeLocked(rec *record, o ResumeOptions) (*transition, error) {
	if rec.Unresponsive && !o.DropMemory {
		return nil, ErrUnresponsive
	}
	if err := r.enterLocked(rec); err != nil {
		return nil, err
	}
	sb, instance := rec.Sandbox, rec.instance
	return r.beginLocked(rec, Resuming, func(ctx context.Context) (func() State, error) {
		ctx, cancel := context.WithTimeout(ctx, resumeDeadline)
		defer cancel()
		memory := sb.Memory && !o.DropMemory
		var booted Instance
		var err error
		suspended := instance != nil && instance.Suspends()
		switch {
		case suspended:
			err = r.revive(ctx, rec, &sb, instance, o)
		case memory && instance != nil:
			err = r.resumeMemory(ctx, rec, sb, instance)
		default:
			booted, err = r.boot(ctx, rec, sb, instance, memory)
		}
		if err != nil {
			r.options.Logger.ErrorContext(ctx, "sandbox not resumed", "sandbox", sb.ID, "error", err)
			return func() State { r.leaveLocked(rec); return Paused }, &LaunchError{refusal(err, bootInstead), true}
		}
		if rec.outlives() == nil {
			r.noteRunning(sb.ID)
		}
		r.options.Logger.InfoContext(ctx, "sandbox resumed", "sandbox", sb.ID, "memory", memory)
		return func() State {
			if suspended {
				r.becomeLocked(rec, sb)
				return Running
			}
			r.thawLocked(rec)
			if booted != nil {
				rec.instance = booted
				r.watchLocked(rec)
			}
			if o.AutoPause != nil {
				rec.AutoPause = *o.AutoPause
			}
			rec.Memory, rec.Unresponsive, rec.outdated = false, false, false
			r.beginLifeLocked(rec, o.Lifetime)
			return Running
		}, nil
	}), nil
}

// bootInstead is the remedy for a sandbox whose memory cannot be restored.
const bootInstead = "resume it with memory false (e2bctl resume --reboot), which boots it from its files"

// resumeMemory lets a frozen sandbox continue.
func (r *Registry) resumeMemory(ctx context.Context, rec *record, sb Sandbox, instance Instance) error {
	if rec.outdated { // SetEgress is only called while the sandbox runs
		rules, err := sb.rules()
		if err != nil {
			return err
		}
		instance.SetEgress(rules)
	}
	return instance.Resume(ctx)
}

// boot starts a sandbox from its files. If memory is set, boot also restores the saved memory. If the
// sandbox was frozen, boot ends its processes, so that only the saved files and memory are left.
func (r *Registry) boot(ctx context.Context, rec *record, sb Sandbox, frozen Instance, memory bool) (Instance, error) {
	k := rec.kept // only a transition changes kept, and this is the only transition
	if frozen != nil {
		sb.Memory, sb.Unresponsive = false, false
		if !r.outlasts(frozen) { // otherwise, the pause has saved the files
			err := frozen.Check(engine.SavedFiles)
			if err != nil {
				return nil, err
			}
			if k, err = r.keep(ctx, rec, sb, frozen, pause{}); err != nil {
				return nil, err
			}
		}
		r.mu.Lock()
		rec.Memory, rec.Unresponsive, rec.kept, rec.instance = k.sandbox.Memory, false, k, nil
		r.thawLocked(rec)
		r.mu.Unlock()
		r.close(sb.ID, frozen)
	}
	from := ""
	if memory {
		from = k.memory()
	}
	spec, err := (&record{Sandbox: sb, base: rec.base, asks: rec.asks, use: rec.use}).spec(k.dir, from)
	if err != nil {
		return nil, err
	}
	return r.options.Launch(ctx, spec)
}
