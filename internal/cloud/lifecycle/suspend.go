package lifecycle

import (
	"context"
	"errors"
)

// suspend pauses a sandbox whose instance keeps only a home. The instance stays, without processes.
func (r *Registry) suspend(ctx context.Context, rec *record, sb *Sandbox, instance Instance) error {
	r.mu.Lock()
	full := len(r.down) > r.options.MaxKept // this sandbox is one of them already
	r.mu.Unlock()
	if full {
		return &KeptLimitError{r.options.MaxKept}
	}
	if err := instance.Pause(ctx); err != nil {
		return err
	}
	if rec.outlives() == nil {
		return nil
	}
	rec.storing.Lock()
	defer rec.storing.Unlock()
	if err := r.storeAs(ctx, rec, *sb); err != nil {
		// Its engine knows that it is paused. Only the time of the pause is not stored.
		r.options.Logger.WarnContext(ctx, "the time of a pause could not be stored", "sandbox", sb.ID, "error", err)
	}
	return nil
}

// revive resumes a sandbox that suspend paused, and records in sb that it runs. After an error it is
// paused.
func (r *Registry) revive(ctx context.Context, rec *record, sb *Sandbox, instance Instance, o ResumeOptions) error {
	if err := instance.Resume(ctx); err != nil {
		return err
	}
	if o.AutoPause != nil {
		sb.AutoPause = *o.AutoPause
	}
	sb.State, sb.Unresponsive, sb.StartedAt = Running, false, r.now()
	sb.EndAt = sb.StartedAt.Add(min(o.Lifetime, r.options.MaxLifetime))
	if rec.outlives() == nil {
		return nil
	}
	rec.storing.Lock()
	defer rec.storing.Unlock()
	if err := r.storeAs(ctx, rec, *sb); err != nil {
		return errors.Join(err, instance.Pause(context.WithoutCancel(ctx)))
	}
	return nil
}
