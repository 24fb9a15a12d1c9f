package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Snapshot copies the files of a running sandbox, which runs on, to a layer that the
// caller holds. It returns the sandbox as it was. Errors are a [*NotFoundError], a
// [*StateError], a [*SaveError], [ErrClosed], and ctx's, after which nothing is left of the
// snapshot.
func (r *Registry) Snapshot(ctx context.Context, id string) (sb Sandbox, layer string, err error) {
	return r.checkpoint(ctx, id, onSnapshot)
}

func (r *Registry) checkpoint(ctx context.Context, id string, e event) (sb Sandbox, layer string, err error) {
	var own *transition
	err = r.on(ctx, id, e, func(rec *record) (*transition, error) {
		sb = rec.Sandbox
		own = r.checkpointLocked(rec, &layer)
		return own, nil
	})
	if own != nil { // of which only this call wants the result
		own.cancel()
		<-own.done
	}
	if err != nil && layer != "" {
		r.layers.Release(layer)
		layer = ""
	}
	return sb, layer, err
}

// checkpointLocked begins to copy the files of a running sandbox to a layer. Its id is
// known when the transition is done.
func (r *Registry) checkpointLocked(rec *record, layer *string) *transition {
	id, instance := rec.ID, rec.instance
	return r.beginLocked(rec, Snapshotting, func(ctx context.Context) (func() State, error) {
		run := func() State { return Running }
		kept, err := r.layers.Add(func(dir string) error { return instance.Checkpoint(ctx, dir) })
		if err != nil {
			r.options.Logger.WarnContext(ctx, "no snapshot of a sandbox", "sandbox", id, "error", err)
			return run, &SaveError{err}
		}
		*layer = kept
		r.options.Logger.WarnContext(ctx, "snapshot of a sandbox: it has the files, and not the memory; what is made from it starts its processes anew", "sandbox", id)
		return run, nil
	})
}

// Fork is one child of a fork, or why there is none.
type Fork struct {
	Sandbox Sandbox
	Err     error
}

// forkers is how many children are started at once.
const forkers = 4

// Fork makes n sandboxes like a running one, which runs on: with its files and as it was
// requested, but with ids and a lifetime of their own. All have the same files, whatever
// the sandbox does meanwhile. Errors are those of [Registry.Snapshot]; those of one child
// are those of [Registry.Create]. When ctx is cancelled, nothing of the fork is left.
func (r *Registry) Fork(ctx context.Context, id string, n int, lifetime time.Duration) ([]Fork, error) {
	sb, layer, err := r.checkpoint(ctx, id, onFork)
	if err != nil {
		return nil, err
	}
	defer r.layers.Release(layer)
	q := sb.Request
	q.Lifetime, q.Egress, q.Layers = lifetime, nil, []string{layer}
	forks := make([]Fork, n)
	free := make(chan struct{}, forkers)
	var starting sync.WaitGroup
	for i := range forks {
		free <- struct{}{}
		starting.Go(func() {
			defer func() { <-free }()
			forks[i].Sandbox, forks[i].Err = r.Create(ctx, q)
		})
	}
	starting.Wait()
	if errors.Is(ctx.Err(), context.Canceled) { // nobody would know of them
		for _, fork := range forks {
			if fork.Err == nil {
				_ = r.Kill(fork.Sandbox.ID) // or it has ended already
			}
		}
		return nil, ctx.Err()
	}
	return forks, nil
}

// files returns the files that a sandbox with layers begins with, until release. They are
// copied when it is started: a sandbox that began with a layer saves all that the layer
// had, so there is never more than one.
func (r *Registry) files(ids []string) (dir string, release func(), err error) {
	if len(ids) > 1 {
		return "", nil, fmt.Errorf("lifecycle: a sandbox cannot begin with %d layers, only with one", len(ids))
	}
	dirs, err := r.layers.Hold(ids...)
	if err != nil || len(ids) == 0 {
		return "", func() {}, err
	}
	return dirs[0], func() { r.layers.Release(ids...) }, nil
}
