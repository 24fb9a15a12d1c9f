package sandbox

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/e2bctl/e2bctl/api"
)

// Snapshot is the state of a sandbox at one moment. Pass its ID to [WithTemplate] to create
// sandboxes from it.
type Snapshot struct {
	// ID is the id, with the tag, of the template that the service made for the snapshot. For a named
	// snapshot, ID contains the name.
	ID string
	// Names are the names of the template that the service made for the snapshot. Each begins with the
	// name of the team. Names is empty for a snapshot without a name.
	Names []string
	// Memory reports whether the snapshot has the memory of the sandbox, so that the processes
	// continue in new sandboxes. False means that the snapshot has only the files. Nil means that the
	// service does not report Memory.
	Memory *bool
}

func snapshotOf(s api.Snapshot) Snapshot { return Snapshot(s) }

// SnapshotParams sets how to make a snapshot. The zero value makes a snapshot without a name, which
// keeps as much state as the service can keep.
type SnapshotParams struct {
	// Name is the name of the snapshot, with or without a tag: "name", "name:tag",
	// "team/name:tag". If the name exists, the snapshot becomes its newest version. A snapshot
	// without a name can be found only by its ID.
	Name string
	// Mode is the part of the state to keep; empty means the service's default. A service that
	// cannot keep memory returns [ErrInvalidArgument] for [SnapshotFull], and keeps only the
	// files by default: [Snapshot].Memory reports that.
	Mode SnapshotMode
}

// SnapshotListParams filters a list of snapshots. The zero value selects all snapshots.
type SnapshotListParams struct {
	// SandboxID selects the snapshots of one sandbox.
	SandboxID string
	// Name is a name or id. Without a tag it means all tags.
	Name string
	// PageSize limits the entries of a page, 1 to 100. Zero means the service's default, 100.
	PageSize int
	// NextToken is the token of the page to return; empty means the first page.
	NextToken string
}

// SnapshotMode is the part of a sandbox's state that a snapshot keeps.
type SnapshotMode = api.SnapshotMode

// These are the modes of a snapshot.
const (
	// SnapshotFull keeps files and memory. A local cloud supports it only with an engine that
	// saves memory, such as gVisor.
	SnapshotFull = api.SnapshotFull
	// SnapshotFilesystem keeps only the files.
	SnapshotFilesystem = api.SnapshotFilesystem
)

// Snapshot stores the state of the sandbox under an id and, with SnapshotParams.Name, under a name.
// The sandbox continues to run. Any program can create sandboxes from the snapshot with
// [WithTemplate], even after this sandbox has ended. The snapshot stays until [Snapshots.Delete].
//
// By default the snapshot keeps as much state as the service can; [Snapshot].Memory reports whether
// that includes the memory. A local cloud keeps the files. With an engine that saves memory, it
// also keeps the memory. Only the same machine can create sandboxes from a snapshot with memory; on
// another machine Create returns [ErrInvalidArgument].
//
// The error is [ErrInvalidArgument] when the mode or the name is refused. It is [ErrGone] with
// [GonePaused] when the sandbox is paused; Snapshot does not resume it. If ctx ends during the
// call, a snapshot may have been made: [Snapshots.List] finds it.
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

// Snapshot is like [Sandbox.Snapshot], for a sandbox without a handle. The error is [ErrGone]
// if there is no such sandbox.
func (c *Client) Snapshot(ctx context.Context, id string, p *SnapshotParams) (*Snapshot, error) {
	snapshot, err := c.api.Snapshots.Create(ctx, id, (*api.SnapshotParams)(p))
	if err != nil {
		return nil, fmt.Errorf("sandbox: snapshot: %w", c.asleepOrMissing(ctx, id, err))
	}
	return (*Snapshot)(snapshot), nil
}

// asleepOrMissing is like [missing]. But if the sandbox is only paused, the error has the state
// [GonePaused].
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

// paused sets the state to a pause that began at since.
func (e *GoneError) paused(since time.Time) {
	e.State, e.Reason, e.At = GonePaused, "it is paused; Resume or Connect wakes it up", since
}

// Snapshots lists and deletes snapshots. It is safe for concurrent use.
type Snapshots struct{ client *Client }

// List iterates over the snapshots of the key that p selects. It yields an error at most once,
// as the last item.
func (s *Snapshots) List(ctx context.Context, p *SnapshotListParams) iter.Seq2[Snapshot, error] {
	return eachAs(s.client.api.Snapshots.List(ctx, (*api.SnapshotListParams)(p)), snapshotOf)
}

// Delete deletes a snapshot and all other snapshots with the same name, whatever their tags. The
// error is [ErrConflict] while a running or paused sandbox exists that was created from the
// snapshot. It is [ErrNotFound] if there is no such snapshot.
func (s *Snapshots) Delete(ctx context.Context, id string) error {
	if err := s.client.api.Snapshots.Delete(ctx, id); err != nil {
		return fmt.Errorf("sandbox: delete snapshot: %w", err)
	}
	return nil
}
