package link

import (
	"fmt"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// Bounds of one sandbox. The server enforces them, and the daemon inside does not exceed them.
const (
	MaxStreams  = 1024 // connections to ports of programs; the same number to the sandbox's own ports
	MaxDialling = 128  // connections out of the sandbox that are being made
	DialTimeout = 10 * time.Second
)

// Slots counts connections. Its capacity is the maximum number of connections at the same time.
type Slots chan struct{}

// NewSlots returns slots for n connections: at least one, and at most [MaxStreams].
func NewSlots(n uint64) Slots { return make(Slots, max(1, min(n, MaxStreams))) }

// Take counts a connection until release is called. release may be called more than once. If there
// are too many connections, the error is [engine.ErrTooMany].
func (s Slots) Take() (release func(), err error) { return take(s, "open") }

// Dialling counts the connections out of a sandbox that are being made.
type Dialling chan struct{}

// NewDialling returns a Dialling that counts at most [MaxDialling] connections.
func NewDialling() Dialling { return make(Dialling, MaxDialling) }

// Take counts a connection until connected is called. connected may be called more than once. If too
// many connections are being made, the error is [engine.ErrTooMany].
func (d Dialling) Take() (connected func(), err error) { return take(d, "being made") }

func take(slots chan struct{}, how string) (release func(), err error) {
	select {
	case slots <- struct{}{}:
		return sync.OnceFunc(func() { <-slots }), nil
	default:
		return nil, fmt.Errorf("%w: %d connections are %s", engine.ErrTooMany, cap(slots), how)
	}
}

// PortSlots count the connections into one sandbox. The sandbox's own ports serve its owner.
// Connections to these ports are counted separately, so that these ports answer even if there are too
// many connections to other ports.
type PortSlots struct{ user, own Slots }

// NewPortSlots returns slots for two kinds of connections. user is the number of connections to
// ports of programs, and own is the number of connections to the sandbox's own ports. Each kind
// gets at least one slot and at most [MaxStreams].
func NewPortSlots(user, own uint64) PortSlots {
	return PortSlots{user: NewSlots(user), own: NewSlots(own)}
}

// Take counts a connection to a port. Its results are those of [Slots.Take].
func (s PortSlots) Take(port int) (release func(), err error) {
	if protocol.OwnPort(port) {
		return s.own.Take()
	}
	return s.user.Take()
}
