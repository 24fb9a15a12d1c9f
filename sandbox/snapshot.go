package sandbox

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/e2bctl/e2bctl/api"
)

// Snapshot is the state of a sandbox at one moment. [WithTemplate] with its ID creates sandboxes
// from it.
type Snapshot struct {
	// ID is the template that the service made for the snapshot, with the tag. It
	// contains the name of a named one.
	ID string
	// Names are the names of that template, with the team in front; none for a snapshot without a
	// name.
	Names []string
	// Memory reports whether the snapshot has the memory of the sandbox, so that
	// sandboxes made from it go on where that was. False means that it has only the
	// files, and nil that the service does not say.
	Memory *bool
}

func snapshotOf(s api.Snapshot) Snapshot { return Snapshot(s) }

// SnapshotParams says how to make a snapshot. The zero value makes one without a name that keeps
// as much as the service can.
type SnapshotParams struct {
	// Name is the name to give it, with or without a tag: "name", "name:tag",
	// "team/name:tag". A name that exists already gets the snapshot as its newest
	// version. Without a name only its ID leads to it.
	Name string
	// Mode says which state is kept; empty means the service's default. A service that cannot keep
	// memory refuses [SnapshotFull] with [ErrInvalidArgument], and by default keeps the files:
	// [Snapshot].Memory reports that.
	Mode SnapshotMode
}

// SnapshotListParams filters a list of snapshots. The zero value means all.
type SnapshotListParams struct {
	// SandboxID selects the snapshots of one sandbox.
	SandboxID string
	// Name is a name or id. Without a tag it means all tags.
	Name string
	// PageSize limits the entries of a page, 1 to 100. Zero means the service's default, 100.
	PageSize int
	// NextToken continues where the previous page ended.
	NextToken string
}

// SnapshotMode says which state a snapshot keeps.
type SnapshotMode = api.SnapshotMode

// The states that a snapshot keeps.
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
// until [Snapshots.Delete].
//
// By default the snapshot keeps as much as the service can; [Snapshot].Memory says whether that
// was the memory, too. A local cloud keeps the files, and the memory on an engine that saves it:
// from that only the same machine makes sandboxes, and Create is [ErrInvalidArgument] elsewhere.
// The error is [ErrInvalidArgument] when the mode or the name is refused, and [ErrGone] with
// [GonePaused] when the sandbox is paused: it is not resumed for that. If ctx cuts the call off,
// there may be a snapshot, which [Snapshots.List] then finds.
func (sb *Sandbox) Snapshot(ctx context.Context, p *SnapshotParams) (*Snapshot, error) {
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	snapshot, err := sb.client.api.Snapshots.Create(ctx, sb.ID(), (*api.SnapshotParams)(p))
	if err != nil {
		return nil, sb.failed(ctx, "snapshot", missing(sb.ID(), err))
	}
	return (*Snapshot)(snapshot), nil
}

// Snapshot is [Sandbox.Snapshot] for a sandbox to which there is no handle. If there
// is no such sandbox, the error is [ErrGone].
func (c *Client) Snapshot(ctx context.Context, id string, p *SnapshotParams) (*Snapshot, error) {
	snapshot, err := c.api.Snapshots.Create(ctx, id, (*api.SnapshotParams)(p))
	if err != nil {
		return nil, fmt.Errorf("sandbox: snapshot: %w", c.asleepOrMissing(ctx, id, err))
	}
	return (*Snapshot)(snapshot), nil
}

// asleepOrMissing is like missing, and its error says if the sandbox is only paused.
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

// Snapshots works with the snapshots that were made. It is safe for concurrent use.
type Snapshots struct{ client *Client }

// List iterates over the snapshots of the key, or those that p selects. An error is yielded
// at most once, as the last item.
func (s *Snapshots) List(ctx context.Context, p *SnapshotListParams) iter.Seq2[Snapshot, error] {
	return eachAs(s.client.api.Snapshots.List(ctx, (*api.SnapshotListParams)(p)), snapshotOf)
}

// Delete deletes a snapshot, and with it all that have the same name, whatever their tags. While
// sandboxes made from it exist, running or paused, the error is [ErrConflict]. If there is no such
// snapshot it is [ErrNotFound].
func (s *Snapshots) Delete(ctx context.Context, id string) error {
	if err := s.client.api.Snapshots.Delete(ctx, id); err != nil {
		return fmt.Errorf("sandbox: delete snapshot: %w", err)
	}
	return nil
}
