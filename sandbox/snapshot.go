package sandbox

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/e2bctl/e2bctl/api"
)

// Snapshot is what was kept of a sandbox at one moment. [WithTemplate] with its ID
// creates sandboxes from it.
type Snapshot = api.Snapshot

// SnapshotParams says how to make a snapshot.
type SnapshotParams = api.SnapshotParams

// SnapshotListParams filters a list of snapshots.
type SnapshotListParams = api.SnapshotListParams

// SnapshotMode is what a snapshot keeps.
type SnapshotMode = api.SnapshotMode

// What a snapshot keeps.
const (
	// SnapshotFull keeps files and memory. A local cloud refuses it unless its engine saves
	// memory, as gVisor does.
	SnapshotFull = api.SnapshotFull
	// SnapshotFilesystem keeps only the files.
	SnapshotFilesystem = api.SnapshotFilesystem
)

// Snapshot keeps the state of the sandbox under an id and, with SnapshotParams.Name,
// a name, and the sandbox runs on. New sandboxes are made from it with
// [WithTemplate], by any program and also when this sandbox has long ended. It stays
// until [Client.DeleteSnapshot].
//
// By default what the service can keep is kept; [Snapshot].Memory says whether that
// was the memory, too. A local cloud keeps the files, and the memory on an engine that saves
// it: from that only the same machine makes sandboxes, and Create is [ErrInvalidArgument]
// elsewhere. The error is [ErrInvalidArgument] when the mode or the name is refused, and
// [ErrGone] with
// [GonePaused] when the sandbox is paused: it is not resumed for that. If ctx cuts
// the call off, there may be a snapshot, which [Client.Snapshots] then finds.
func (sb *Sandbox) Snapshot(ctx context.Context, p *SnapshotParams) (*Snapshot, error) {
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	snapshot, err := sb.client.api.Snapshots.Create(ctx, sb.ID(), p)
	if err != nil {
		return nil, sb.failed(ctx, "snapshot", missing(sb.ID(), err))
	}
	return snapshot, nil
}

// Snapshot is [Sandbox.Snapshot] for a sandbox to which there is no handle. If there
// is no such sandbox, the error is [ErrGone].
func (c *Client) Snapshot(ctx context.Context, id string, p *SnapshotParams) (*Snapshot, error) {
	snapshot, err := c.api.Snapshots.Create(ctx, id, p)
	if err != nil {
		return nil, fmt.Errorf("sandbox: snapshot: %w", c.asleepOrMissing(ctx, id, err))
	}
	return snapshot, nil
}

// asleepOrMissing is missing for a call that does not find a sandbox that is paused.
func (c *Client) asleepOrMissing(ctx context.Context, id string, err error) error {
	gone, ok := errors.AsType[*GoneError](missing(id, err))
	if !ok {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	if info, asked := c.api.Sandboxes.Get(ctx, id); asked == nil && info.State == api.StatePaused {
		gone.paused(info.EndAt)
	}
	return gone
}

// paused says that the sandbox is still there, and only asleep since then.
func (e *GoneError) paused(since time.Time) {
	e.State, e.Reason, e.At = GonePaused, "it is paused; Resume or Connect wakes it up", since
}

// Snapshots iterates over the snapshots of the key, or those that p selects. An
// error is yielded at most once, as the last item.
func (c *Client) Snapshots(ctx context.Context, p *SnapshotListParams) iter.Seq2[*Snapshot, error] {
	return c.api.Snapshots.List(ctx, p)
}

// DeleteSnapshot deletes a snapshot, and with it all that have the same name,
// whatever their tags. Sandboxes that are made from it, running or paused, are in
// its way: the error is then [ErrConflict]. If there is no such snapshot
// it is [ErrNotFound].
func (c *Client) DeleteSnapshot(ctx context.Context, id string) error {
	if err := c.api.Snapshots.Delete(ctx, id); err != nil {
		return fmt.Errorf("sandbox: delete snapshot: %w", err)
	}
	return nil
}
