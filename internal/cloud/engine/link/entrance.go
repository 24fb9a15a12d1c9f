package link

import (
	"sync"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// Entrance tracks the connections into one sandbox, so that they can be cut. The zero Entrance
// permits connections. Entrance is safe for concurrent use.
type Entrance struct {
	mu   sync.Mutex
	shut bool
	cuts map[*func()]struct{}
}

// Enter records a connection. [Entrance.Shut] calls cut to end the connection. leave removes the
// record of the connection. leave may be called more than once, and cut may call leave. While the
// entrance is shut, Enter returns [engine.ErrFrozen].
func (e *Entrance) Enter(cut func()) (leave func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.shut {
		return nil, engine.ErrFrozen
	}
	if e.cuts == nil {
		e.cuts = map[*func()]struct{}{}
	}
	e.cuts[&cut] = struct{}{}
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.cuts, &cut)
	}, nil
}

// Shut cuts every connection and refuses new ones until Open.
func (e *Entrance) Shut() {
	e.mu.Lock()
	e.shut = true
	cuts := e.cuts
	e.cuts = nil
	e.mu.Unlock()
	for cut := range cuts {
		(*cut)()
	}
}

// Open allows connections again.
func (e *Entrance) Open() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.shut = false
}

// IsShut reports whether connections are refused.
func (e *Entrance) IsShut() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.shut
}
