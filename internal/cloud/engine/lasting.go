package engine

import (
	"bytes"
	"context"
	"maps"
	"time"
)

// Adopter is an engine whose sandboxes can outlive it. It keeps their records, and gives them to the
// next engine, or to another one beside it.
type Adopter interface {
	Engine
	// Adopt calls found for each sandbox with a record that another engine made, whether it still runs
	// or not. It returns when found was called for all that are there. Until Close, found is also
	// called for those that others make later. Only one goroutine calls found, which must not block for
	// long. ctx bounds only the wait for the first ones. Adopt must be called once, and returns at once
	// if sandboxes end with the engine.
	Adopt(ctx context.Context, found func(Found)) error
	// IDOf returns the id of the sandbox that a request with an idempotency key makes. It is the same
	// for all servers with the same secret, and nobody else can guess it. If another server makes a
	// sandbox with this id, NewSandbox waits. It then returns [ErrExists] if the other server has
	// stored a record, and makes the sandbox itself if the other one has failed. IDOf returns "" if
	// sandboxes end with the engine.
	IDOf(key string) string
}

// Found is a sandbox that another engine made.
type Found struct {
	ID     string
	Record Record
	// Open returns the sandbox. It does not wait for a connection, and Dial does. Only ID, Config and
	// Tell of the options are used. If a sandbox is not opened it stays as it is.
	Open func(SandboxOptions) (Lasting, error)
}

// Lasting is a sandbox that can outlive the engine. [Engine.NewSandbox] of an [Adopter] returns one
// unless sandboxes end with the engine.
type Lasting interface {
	Sandbox
	// Keep stores the record of the sandbox. From the first time on, the sandbox outlives the engine.
	// The end of a sandbox without a record is that of the engine, even if that is killed.
	Keep(ctx context.Context, r Record) error
	// Kept returns the record as it is stored now, and a channel that is closed when another engine
	// changes it. The record is the zero Record before the first Keep.
	Kept() (Record, <-chan struct{})
	// Leave lets a sandbox with a record go on without this engine, as Close of the engine does. After
	// Leave, and after Close of the engine, Done is closed and Err returns [ErrClosed].
	Leave() error
}

// Record is the part of a sandbox's record that an [Adopter] keeps.
type Record struct {
	Template  string            // alias of the template; for people who look at the engine's objects
	Metadata  map[string]string // for the same people
	StartedAt time.Time
	EndAt     time.Time // of a paused sandbox, the time of the pause
	// Paused means that the sandbox is suspended, as [Suspender] describes. The engine keeps it until a
	// server ends it.
	Paused bool
	// Linger is the time from EndAt until the engine ends the sandbox if no server did so before, in
	// whole seconds.
	Linger time.Duration
	// Sealed has the rest, which only servers with the same secret can read. It includes tokens and
	// variables.
	Sealed []byte
}

// Equal reports whether two records are the same.
func (r *Record) Equal(other Record) bool {
	return r.Template == other.Template && maps.Equal(r.Metadata, other.Metadata) &&
		r.StartedAt.Equal(other.StartedAt) && r.EndAt.Equal(other.EndAt) && r.Linger == other.Linger && r.Paused == other.Paused && bytes.Equal(r.Sealed, other.Sealed)
}
