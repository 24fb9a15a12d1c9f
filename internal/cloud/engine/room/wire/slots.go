package wire

import (
	"sync"

	"github.com/e2bctl/e2bctl/internal/protocol"
)

// Slots count connections together, up to their capacity.
type Slots chan struct{}

// NewSlots returns slots for n connections, but at most [MaxStreams], and at least one.
func NewSlots(n uint64) Slots { return make(Slots, max(1, min(n, MaxStreams))) }

// Take counts a connection until release is called, which may be called more than once. ok is
// false if there are too many.
func (s Slots) Take() (release func(), ok bool) {
	select {
	case s <- struct{}{}:
		return sync.OnceFunc(func() { <-s }), true
	default:
		return nil, false
	}
}

// PortSlots count the connections into one sandbox. Those to the sandbox's own ports, which serve
// its owner, are counted separately, so that these ports answer regardless of the number of
// others.
type PortSlots struct{ user, own Slots }

// NewPortSlots returns slots for connections: user for those to ports of programs, own for
// those to the sandbox's own ports. Each gets at least one and at most [MaxStreams].
func NewPortSlots(user, own uint64) PortSlots {
	return PortSlots{user: NewSlots(user), own: NewSlots(own)}
}

// Take counts a connection to a port as [Slots.Take] does.
func (s PortSlots) Take(port int) (release func(), ok bool) {
	if protocol.OwnPort(port) {
		return s.own.Take()
	}
	return s.user.Take()
}
