//go:build linux

package main

import (
	"context"
	"errors"
	"time"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// gvisorRow is the beginning of the names of the rows about gVisor.
const gvisorRow = "gVisor: "

// gvisorRows are the rows about sandboxes of gVisor, and about their memory.
func (b *bench) gvisorRows() []row {
	return []row{
		{
			name: gvisorRow + "`Commands.Run(\"echo\")`", runs: 100, measure: b.inGVisor(func(b *bench) measurement { return b.inOne(echo) }),
			floor: b.inOne(echo), floorName: "the usual sandbox",
		},
		{name: gvisorRow + "paused to the state directory, a kernel with pandas", runs: 10, measure: b.inGVisor((*bench).checkpointed)},
		{
			name: gvisorRow + "made from a snapshot of that, to its first cell", runs: 10, measure: b.inGVisor((*bench).restored),
			floor: driverStart(pandas), floorName: "starting the driver on the host",
		},
	}
}

// inGVisor measures in a cloud of gVisor that has a state directory. If the
// path of e2bctl was given, the program e2bctl is the daemon of the sandboxes, because the running
// program may need shared libraries.
func (b *bench) inGVisor(measure func(*bench) measurement) measurement {
	options := []local.Option{local.WithEngine(local.EngineGVisor)}
	if b.command != "" {
		options = append(options, local.WithBinary(b.command))
	}
	return func(ctx context.Context, runs int) (r result, err error) {
		err = keeping(ctx, func(client *sandbox.Client) (err error) {
			other := *b
			other.client = client
			r, err = measure(&other)(ctx, runs)
			return err
		}, options...)
		return r, err
	}
}

// withPandas creates a sandbox whose kernel has imported pandas.
func (b *bench) withPandas(ctx context.Context, do func(*sandbox.Sandbox) error) error {
	return b.with(ctx, func(sb *sandbox.Sandbox) error {
		if err := onePlusOneInPandas(ctx, sb); err != nil {
			return err
		}
		return do(sb)
	})
}

// checkpointed measures a pause that writes the memory to the disk.
func (b *bench) checkpointed() measurement {
	return func(ctx context.Context, runs int) (r result, err error) {
		err = b.withPandas(ctx, func(sb *sandbox.Sandbox) (err error) {
			r, err = repeat(ctx, runs, func(ctx context.Context) (time.Duration, error) {
				start := time.Now()
				err := sb.Pause(ctx, nil)
				return time.Since(start), errors.Join(err, sb.Resume(ctx, nil))
			})
			return err
		})
		return r, err
	}
}

// restored measures a sandbox that continues from memory on the disk. The time ends with its first
// cell, which needs that memory.
func (b *bench) restored() measurement {
	return func(ctx context.Context, runs int) (r result, err error) {
		err = b.withPandas(ctx, func(sb *sandbox.Sandbox) error {
			kept, err := sb.Snapshot(ctx, &sandbox.SnapshotParams{Mode: sandbox.SnapshotFull})
			if err != nil {
				return err
			}
			one := *b
			one.kind = []sandbox.CreateOption{sandbox.WithTemplate(kept.ID)}
			r, err = one.created(0, onePlusOneInPandas)(ctx, runs)
			return errors.Join(err, b.client.Snapshots.Delete(ctx, kept.ID))
		})
		return r, err
	}
}
