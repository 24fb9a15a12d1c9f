package localcloud

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/cloud/volumes"
	"github.com/e2bctl/e2bctl/internal/privatedir"
)

// StateDir returns the directory for the data that outlives this user's local cloud. StateDir
// creates the directory if it is missing. note is the reason why the directory may not last, or ""
// if it lasts.
func StateDir() (dir, note string, err error) {
	dir, note, err = privatedir.MakeLasting("cloud", privatedir.State, privatedir.Runtime, privatedir.Temporary)
	if err != nil {
		return "", "", fmt.Errorf("the state directory of a local cloud: %w", err)
	}
	return dir, note, nil
}

// State is the content of a state directory.
type State struct {
	Dir     string
	InUse   *store.InUseError // names the process that has the directory open; nil: no process has it open
	Kept    []Kept            // the paused sandboxes, ordered by ID
	Space   Space             // the space of snapshots and templates
	Volumes volumes.Space
	Notes   []string // the dangers to the directory, and its damaged parts; empty while another process uses the directory
}

// Kept is a paused sandbox that a state directory keeps, as commands show it.
type Kept struct {
	ID    string    `json:"sandboxID"`
	Saved time.Time `json:"pausedAt"`
	Bytes int64     `json:"bytes"` // the bytes that the sandbox's files take on the disk
}

// Bytes returns the sum of the space of sandboxes.
func Bytes(kept []Kept) (sum int64) {
	for _, k := range kept {
		sum += k.Bytes
	}
	return sum
}

// Size formats a number of bytes for people.
func Size(bytes int64) string {
	switch {
	case bytes >= 10<<30:
		return fmt.Sprintf("%d GiB", bytes>>30)
	case bytes >= 1<<20:
		return fmt.Sprintf("%d MiB", bytes>>20)
	}
	return fmt.Sprintf("%d KiB", (bytes+1023)>>10)
}

// ReadState returns the content of a state directory, even while a local cloud uses the directory.
// If no cloud uses it, ReadState removes unfinished work of a cloud that was killed.
func ReadState(ctx context.Context, dir string) (state State, err error) {
	s, err := openState(ctx, dir)
	if conflict, ok := errors.AsType[*ConflictError](err); ok {
		state, err = Survey(ctx, dir)
		state.InUse = conflict.InUse
		return state, err
	}
	if err != nil {
		return State{Dir: dir}, err
	}
	defer func() { err = closeState(s, err) }()
	if state, err = Survey(ctx, dir); err != nil {
		return state, err
	}
	state.Notes = s.Notes()
	state.Space, err = spaceOf(ctx, s)
	return state, err
}

// Survey returns the visible content of a state directory without opening it. The result has no
// notes, and its space includes only the files of layers and uploads. Survey also works for a
// directory that is in use or damaged. It treats a missing directory as an empty one.
func Survey(ctx context.Context, dir string) (state State, err error) {
	state.Dir = dir
	if state.Space, err = surveySpace(ctx, dir); err != nil {
		return state, err
	}
	files, err := store.Survey(ctx, dir, store.Sandboxes)
	for _, f := range files {
		state.Kept = append(state.Kept, Kept{f.ID, f.Saved.UTC(), f.Bytes})
	}
	if err != nil {
		return state, err
	}
	state.Volumes, err = volumes.Survey(ctx, dir)
	return state, err
}

// VerifyState returns nil if dir is a state directory of this user or an empty directory, and an
// error otherwise. It changes nothing.
func VerifyState(dir string) error { return store.Verify(dir) }

// Reset removes all data in a state directory. It returns a *ConflictError while a process uses the
// directory, and the error of [VerifyState] if that fails.
func Reset(ctx context.Context, dir string) error { return Conflict(store.Reset(ctx, dir)) }

// NotKeptError is the error for a sandbox that a state directory does not keep.
type NotKeptError struct{ Dir, ID string }

func (e *NotKeptError) Error() string {
	return "no paused sandbox " + e.ID + " is kept in " + e.Dir
}

func (e *NotKeptError) Is(target error) bool { return target == fs.ErrNotExist }

// RemoveKept removes a sandbox from a state directory that no process uses. For a
// missing sandbox it returns a [NotKeptError].
func RemoveKept(ctx context.Context, dir, id string) (err error) {
	s, err := openState(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = closeState(s, err) }()
	files, err := store.Survey(ctx, dir, store.Sandboxes) // also of unreadable records
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(files, func(f store.Kept) bool { return f.ID == id }) {
		return &NotKeptError{dir, id}
	}
	return s.Delete(store.Sandboxes, id)
}

func openState(ctx context.Context, dir string) (*store.Store, error) {
	s, err := store.Open(ctx, dir)
	return s, Conflict(err)
}

// closeState closes a store that openState returned. It first waits until the removed files are
// gone from the disk, because users remove sandboxes to free space. It returns its own error joined
// to err.
func closeState(s *store.Store, err error) error {
	s.Wait()
	return errors.Join(err, s.Close())
}

// Conflict converts err to a *ConflictError if err means that a state directory is in use. It
// returns any other error unchanged.
func Conflict(err error) error {
	if inUse, ok := errors.AsType[*store.InUseError](err); ok {
		return &ConflictError{InUse: inUse}
	}
	return err
}
