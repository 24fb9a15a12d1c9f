package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/layers"
)

// A Checkpoint is the state of a running sandbox at one time. Other sandboxes can begin with this
// state.
type Checkpoint struct {
	Sandbox Sandbox
	// Layers contain the sandbox's files and, if Memory is set, its memory. The caller holds
	// them.
	Layers []string
	Memory bool
}

// Snapshot copies the files of a running sandbox to a layer, and the memory to another layer. The
// sandbox continues to run. memory points to true if the memory is required, and to false if the
// memory is unwanted. If memory is nil, Snapshot copies the memory if the engine supports this and
// envd answers. Errors are a [*NotFoundError], a [*StateError], a [*SaveError], a [*RefusedError]
// and [ErrClosed]. If ctx ends, Snapshot returns the error of ctx, and nothing of the snapshot is
// left.
func (r *Registry) Snapshot(ctx context.Context, id string, memory *bool) (Checkpoint, error) {
	return r.checkpoint(ctx, id, onSnapshot, memory)
}

func (r *Registry) checkpoint(ctx context.Context, id string, e event, memory *bool) (Checkpoint, error) {
	var made Checkpoint
	var own *transition
	var below layers.Base // layers of the sandbox, which may end meanwhile
	var tops tops
	err := r.handle(ctx, id, e, func(rec *record) (*transition, error) {
		made.Sandbox = rec.Sandbox
		err := checkCheckpoint(rec.instance, memory)
		if err != nil {
			return nil, err
		}
		if below, err = r.layers.Use(rec.Layers...); err != nil {
			return nil, err
		}
		own = r.checkpointLocked(rec, memory, &tops)
		return own, nil
	})
	if own == nil {
		return Checkpoint{}, err
	}
	own.cancel() // only this call needs the result
	<-own.done
	defer below.Release()
	if err != nil || tops.files == "" {
		r.layers.Release(tops.layers()...)
		return Checkpoint{}, err
	}
	if made.Layers, err = r.layers.Chain(ctx, below.IDs, tops.files); err != nil {
		r.layers.Release(tops.memory...)
		return Checkpoint{}, &SaveError{err}
	}
	made.Layers, made.Memory = append(made.Layers, tops.memory...), len(tops.memory) > 0
	return made, nil
}

// checkCheckpoint returns an error if the engine of a sandbox cannot save the requested parts.
func checkCheckpoint(instance Instance, memory *bool) error {
	if err := instance.Check(engine.SavedFiles); err != nil || memory == nil || !*memory {
		return err
	}
	err := instance.Check(engine.SavedMemory)
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		return &RefusedError{Reason: refused.Reason + `; mode="filesystem" (memory false) keeps the files`}
	}
	return err
}

// tops are the layers that a checkpoint adds to a chain.
type tops struct {
	files  string   // layer of the files; "": none
	memory []string // layer of the memory; at most one
}

func (t *tops) layers() []string {
	if t.files == "" {
		return t.memory
	}
	return append([]string{t.files}, t.memory...)
}

// checkpointLocked starts to copy the files of a running sandbox to a layer. If wantsMemory returns
// true, it copies the memory to another layer. made is set when the transition has ended.
func (r *Registry) checkpointLocked(rec *record, memory *bool, made *tops) *transition {
	id, instance := rec.ID, rec.instance
	return r.beginLocked(rec, Snapshotting, func(ctx context.Context) (func() State, error) {
		run := func() State { return Running }
		wanted, err := wantsMemory(ctx, instance, memory)
		if err == nil {
			*made, err = r.addLayers(ctx, instance, wanted)
		}
		if err != nil {
			await(ctx, instance)
			r.options.Logger.WarnContext(ctx, "no snapshot of a sandbox", "sandbox", id, "error", err)
			return run, &SaveError{err}
		}
		if wanted {
			r.options.Logger.InfoContext(ctx, "snapshot of a sandbox, with its memory", "sandbox", id)
		} else {
			r.options.Logger.WarnContext(ctx, "snapshot of a sandbox: it has the files, and not the memory; what is made from it starts its processes anew", "sandbox", id)
		}
		return func() State { r.eventLocked(rec, Event{Type: EventCheckpointed}); return Running }, nil
	})
}

// wantsMemory reports whether to save the memory of a sandbox. If envd does not answer, the saved
// memory would be useless. In this case, wantsMemory returns an error if the memory was requested
// explicitly, and otherwise false.
func wantsMemory(ctx context.Context, instance Instance, memory *bool) (bool, error) {
	promised := instance.Check(engine.SavedMemory) == nil
	if !promised || memory != nil && !*memory {
		return false, nil
	}
	unhealthy := instance.Healthy(ctx)
	if unhealthy != nil && memory != nil {
		return false, fmt.Errorf("%w: envd in the sandbox does not answer: %w", ErrMemory, unhealthy)
	}
	return unhealthy == nil, nil
}

// addLayers saves the files of a running sandbox, and its memory if memory is set, as new layers.
// If it fails, no layer is left.
func (r *Registry) addLayers(ctx context.Context, instance Instance, memory bool) (made tops, err error) {
	made.files, err = r.layers.Add(func(dir string, share bool) (shared bool, err error) {
		if !memory {
			return instance.Checkpoint(ctx, dir, "", share)
		}
		id, err := r.layers.AddMemory(func(of string) (err error) {
			shared, err = instance.Checkpoint(ctx, dir, of, share)
			return err
		})
		if err == nil {
			made.memory = []string{id}
		}
		return shared, err
	})
	if err != nil {
		r.layers.Release(made.memory...)
		return tops{}, err
	}
	return made, nil
}

// Fork is a copy that [Registry.Fork] has created, or the error that prevented the copy.
type Fork struct {
	Sandbox Sandbox
	Memory  bool // the copy continues with the memory of the original
	Err     error
}

// forkers is the maximum number of copies of a fork that start at the same time.
const forkers = 4

// Fork creates n copies of a running sandbox, which continues to run. The copies have the files and
// the request of this sandbox, but their own ids and lifetime. As in [Registry.Snapshot], the
// parameter memory decides whether the copies also have its memory. All copies begin with the same
// files and memory, even if the sandbox changes meanwhile. Errors are those of [Registry.Snapshot].
// The error of a single copy is that of [Registry.Create]. If ctx is cancelled, nothing of the
// fork is left.
func (r *Registry) Fork(ctx context.Context, id string, n int, lifetime time.Duration, memory *bool) ([]Fork, error) {
	from, err := r.checkpoint(ctx, id, onFork, memory)
	if err != nil {
		return nil, err
	}
	defer r.layers.Release(from.Layers...)
	q := from.Sandbox.Request
	q.Lifetime, q.Egress, q.Layers = lifetime, nil, from.Layers
	forks := make([]Fork, n)
	free := make(chan struct{}, forkers)
	var starting sync.WaitGroup
	for i := range forks {
		free <- struct{}{}
		starting.Go(func() {
			defer func() { <-free }()
			forks[i].Sandbox, forks[i].Err = r.Create(ctx, q)
			forks[i].Memory = from.Memory && forks[i].Err == nil
		})
	}
	starting.Wait()
	if errors.Is(ctx.Err(), context.Canceled) { // no client would know of the children
		for _, fork := range forks {
			if fork.Err == nil {
				_ = r.Kill(fork.Sandbox.ID) // fails if the sandbox has already ended
			}
		}
		return nil, ctx.Err()
	}
	return forks, nil
}
