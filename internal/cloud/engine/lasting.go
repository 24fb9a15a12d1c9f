package engine

import (
	"bytes"
	"context"
	"maps"
	"time"
)

// Adopter is an engine with sandboxes that can outlive the engine. An Adopter stores their records,
// and other engines can adopt the sandboxes: the next engine, or one that runs at the same time.
type Adopter interface {
	Engine
	// Adopt calls found for each sandbox that another engine made and that has a record, whether or
	// not the other engine still runs. Adopt returns after the calls for all existing sandboxes. Until
	// Close, found is also called for each sandbox that another engine makes later. Only one goroutine
	// calls found, and found must not block for long. ctx bounds only the wait for the existing
	// sandboxes. Adopt must be called once. If sandboxes end with the engine, Adopt returns at once.
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
	// Open returns the sandbox. Open does not wait for a connection to the sandbox; Dial does. Open
	// uses only ID, Config and Tell of the options. A sandbox that is not opened stays unchanged.
	Open func(SandboxOptions) (Lasting, error)
}

// Lasting is a sandbox that can outlive the engine. [Engine.NewSandbox] of an [Adopter] returns a
// Lasting, except if sandboxes end with the engine.
type Lasting interface {
	Sandbox
	// Keep stores the record of the sandbox. After the first Keep, the sandbox outlives the engine. A
	// sandbox without a record ends when the engine ends, even if the engine is killed.
	Keep(ctx context.Context, r Record) error
	// Kept returns the stored record, and a channel that is closed when another engine changes the
	// record. Before the first Keep, the record is the zero Record.
	Kept() (Record, <-chan struct{})
	// Leave detaches this engine from a sandbox with a record, and the sandbox goes on. Close of the
	// engine does this for all its sandboxes. After Leave or Close, Done is closed and Err returns
	// [ErrClosed].
	Leave() error
}

// Record is the part of a sandbox's record that an [Adopter] stores.
type Record struct {
	Template  string            // alias of the template; for people who look at the engine's objects
	Metadata  map[string]string // for the same people
	StartedAt time.Time
	EndAt     time.Time // of a paused sandbox, the time of the pause
	// Paused means that the sandbox is suspended, as [Suspender] describes. The engine keeps it until a
	// server ends it.
	Paused bool
	// Linger is a time after EndAt, in whole seconds. If no server has ended the sandbox by EndAt plus
	// Linger, the engine ends it.
	Linger time.Duration
	// Sealed is the rest of the record. It includes tokens and variables. Only servers with the same
	// secret can read it, because the engine stores it encrypted.
	Sealed []byte
}

// Equal reports whether two records have equal fields.
func (r *Record) Equal(other Record) bool {
	return r.Template == other.Template && maps.Equal(r.Metadata, other.Metadata) &&
		r.StartedAt.Equal(other.StartedAt) && r.EndAt.Equal(other.EndAt) && r.Linger == other.Linger && r.Paused == other.Paused && bytes.Equal(r.Sealed, other.Sealed)
}
