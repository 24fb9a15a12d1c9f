package lifecycle

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/layers"
)

// Snapshot copies the files of a running sandbox, which runs on, to a layer. It returns the
// sandbox as it was, and the layers that another one begins with to have these files, which
// the caller holds. Errors are a [*NotFoundError], a [*StateError], a [*SaveError],
// [ErrClosed], and ctx's, after which nothing is left of the snapshot.
func (r *Registry) Snapshot(ctx context.Context, id string) (sb Sandbox, chain []string, err error) {
	return r.checkpoint(ctx, id, onSnapshot)
}

func (r *Registry) checkpoint(ctx context.Context, id string, e event) (sb Sandbox, chain []string, err error) {
	var own *transition
	var below layers.Base // the same layers as the sandbox's, which may end meanwhile
	var top string
	err = r.on(ctx, id, e, func(rec *record) (*transition, error) {
		sb = rec.Sandbox
		err := rec.instance.Check(engine.SavedFiles)
		if err != nil {
			return nil, err
		}
		if below, err = r.layers.Use(rec.Layers...); err != nil {
			return nil, err
		}
		own = r.checkpointLocked(rec, &top)
		return own, nil
	})
	if own == nil {
		return sb, nil, err
	}
	own.cancel() // of which only this call wants the result
	<-own.done
	defer below.Release()
	switch {
	case top == "":
		return sb, nil, err
	case err != nil:
		r.layers.Release(top)
		return sb, nil, err
	}
	if chain, err = r.layers.Chain(ctx, below.IDs, top); err != nil {
		return sb, nil, &SaveError{err}
	}
	return sb, chain, nil
}

// checkpointLocked begins to copy the files of a running sandbox to a layer. Its id is
// known when the transition is done.
func (r *Registry) checkpointLocked(rec *record, layer *string) *transition {
	id, instance := rec.ID, rec.instance
	return r.beginLocked(rec, Snapshotting, func(ctx context.Context) (func() State, error) {
		run := func() State { return Running }
		kept, err := r.layers.Add(ctx, func(dir string) error { return instance.Checkpoint(ctx, dir) })
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
	sb, chain, err := r.checkpoint(ctx, id, onFork)
	if err != nil {
		return nil, err
	}
	defer r.layers.Release(chain...)
	q := sb.Request
	q.Lifetime, q.Egress, q.Layers = lifetime, nil, chain
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
