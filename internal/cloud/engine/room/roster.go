//go:build linux

package room

import (
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"sync"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/counter"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
)

// roster contains the sandboxes of a room, and divides among them what they share.
type roster struct {
	counted  counter.Maxima // limits of this user, to be divided among the sandboxes
	flows    flowBudget
	starting chan struct{} // has an element for each sandbox that is starting without a warm sandbox

	mu         sync.Mutex
	closed     bool   // no sandbox and no slot can be reserved
	next       uint64 // the number that was given last
	slots      map[uint32]bool
	sandboxes  map[uint64]*Sandbox // all sandboxes that are not closed yet
	processors processors
}

// newRoster returns a roster without sandboxes.
func newRoster() roster {
	return roster{
		starting:  make(chan struct{}, 4*runtime.NumCPU()),
		slots:     make(map[uint32]bool),
		sandboxes: make(map[uint64]*Sandbox),
	}
}

// add reserves the number, the ids and the processors of a new sandbox.
func (r *roster) add(s *Sandbox) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	slot, err := r.freeSlot()
	if err != nil {
		return err
	}
	r.next++
	s.number, s.slot = r.next, slot
	s.share.cpus = r.processors.take(int(math.Ceil(s.share.limits.CPUs)))
	r.sandboxes[s.number] = s
	return nil
}

// remove frees all that add reserved for s.
func (r *roster) remove(s *Sandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.processors.release(s.share.cpus)
	delete(r.slots, s.slot)
	delete(r.sandboxes, s.number)
}

// find returns the sandbox with a number; nil if there is none.
func (r *roster) find(number uint64) *Sandbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sandboxes[number]
}

// number reserves the number of a process that is not a sandbox's.
func (r *roster) number() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	return r.next
}

// freeSlot reserves a slot. The caller must hold mu.
func (r *roster) freeSlot() (slot uint32, err error) {
	if r.closed {
		return 0, ErrRoomEnded
	}
	slot = 1 // the first slot is the room's own
	for r.slots[slot] {
		slot++
	}
	if slot >= spawn.SlotsCount {
		return 0, fmt.Errorf("%w: %d sandboxes", engine.ErrTooMany, len(r.slots))
	}
	r.slots[slot] = true
	return slot, nil
}

// takeSlot reserves ids that no sandbox uses.
func (r *roster) takeSlot() (slot uint32, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.freeSlot()
}

func (r *roster) releaseSlot(slot uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.slots, slot)
}

// swapProcessors frees old, and reserves n processors.
func (r *roster) swapProcessors(old []int, n int) []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.processors.release(old)
	return r.processors.take(n)
}

// close makes later reservations fail, until open. It returns the sandboxes that are left.
func (r *roster) close() []*Sandbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	return slices.Collect(maps.Values(r.sandboxes))
}

// open allows reservations. A new roster is open.
func (r *roster) open() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = false
}
