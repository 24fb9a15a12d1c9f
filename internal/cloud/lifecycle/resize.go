package lifecycle

import (
	"context"
	"fmt"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// Resize changes the resources of a running sandbox. A zero field of asked does not change. Forks,
// snapshots and pauses of the sandbox keep the new resources. Resizes of a sandbox take place one
// after the other. Errors are a [*NotFoundError], also if the sandbox is paused, a [*RefusedError], an
// [*engine.InUseError], [ErrClosed] and errors of the instance. If ctx ends, Resize returns the error of
// ctx, and the resize continues.
func (r *Registry) Resize(ctx context.Context, id string, asked engine.Resources) error {
	return r.handle(ctx, id, onResize, func(rec *record) (*transition, error) {
		for _, need := range []struct {
			feature engine.Feature
			needed  bool
		}{
			{engine.Resizes, true},
			{engine.CPULimit, asked.CPUs > 0},
			{engine.MemoryLimit, asked.MemoryBytes > 0},
			{engine.DiskLimit, asked.DiskBytes > 0},
		} {
			if !need.needed {
				continue
			}
			if err := rec.instance.Check(need.feature); err != nil {
				return nil, err
			}
		}
		return r.resizeLocked(rec, asked.Over(rec.Resources)), nil
	})
}

// resizeLocked starts to give a running sandbox other resources.
func (r *Registry) resizeLocked(rec *record, to engine.Resources) *transition {
	id, instance := rec.ID, rec.instance
	return r.beginLocked(rec, Resizing, func(ctx context.Context) (func() State, error) {
		err := instance.Resize(ctx, to)
		if err != nil {
			await(ctx, instance)
			r.options.Logger.WarnContext(ctx, "sandbox not resized", "sandbox", id, "error", err)
			return func() State { return Running }, err
		}
		err = r.storeResources(ctx, rec, to)
		r.options.Logger.InfoContext(ctx, "sandbox resized", "sandbox", id, "cpus", to.CPUs, "memory", to.MemoryBytes, "disk", to.DiskBytes)
		return func() State {
			rec.Resources = to
			r.eventLocked(rec, Event{Type: EventUpdated, Message: "resources"})
			return Running
		}, err
	})
}

// storeResources stores the new resources of a sandbox with the instance, if the sandbox can outlive
// the registry. It keeps the changes that other servers have stored since the resize began.
func (r *Registry) storeResources(ctx context.Context, rec *record, to engine.Resources) error {
	lasting := rec.outlives()
	if lasting == nil {
		return nil
	}
	rec.storing.Lock()
	defer rec.storing.Unlock()
	kept, _ := lasting.Kept()
	sb, _, err := sandboxOf(rec.ID, kept)
	if err != nil {
		return fmt.Errorf("lifecycle: sandbox %s is resized, but its record cannot be read: %w", rec.ID, err)
	}
	sb.Resources = to
	return r.storeAs(ctx, rec, sb)
}
