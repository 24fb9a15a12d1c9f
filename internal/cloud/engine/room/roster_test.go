//go:build linux

package room

import (
	"slices"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
	"github.com/e2bctl/e2bctl/internal/must"
)

func TestRoster(t *testing.T) {
	t.Parallel()
	t.Run("processors", spreadsProcessors)
	t.Run("ids and numbers", givesNumbers)
	t.Run("closed", closesRoster)
}

// spreadsProcessors checks that sandboxes get processors of the cores that the fewest sandboxes use.
func spreadsProcessors(t *testing.T) {
	t.Parallel()
	var p processors
	// There are two processors a core, numbered one after the other.
	core := func(cpu int) string { return string(rune('a' + cpu/2)) }
	all := []int{0, 1, 2, 3, 4, 5}
	var taken [][]int
	for i, want := range [][]int{{0, 2}, {1, 4}, {3, 5}, {0, 2}} {
		got := p.choose(2, slices.Clone(all), core)
		if !slices.Equal(got, want) {
			t.Errorf("sandbox %d: got %v, want %v", i, got, want)
		}
		taken = append(taken, got)
	}
	if got := p.choose(7, slices.Clone(all), core); !slices.Equal(got, all) {
		t.Errorf("more than there are: got %v, want %v", got, all)
	}
	p.release(all)
	for _, cpus := range taken[1:] {
		p.release(cpus)
	}
	if got, want := p.choose(1, slices.Clone(all), core), []int{4}; !slices.Equal(got, want) {
		t.Errorf("after the others have ended: got %v, want %v", got, want)
	}
}

// givesNumbers checks that ids are used again, and that numbers are not.
func givesNumbers(t *testing.T) {
	t.Parallel()
	r := newRoster()
	all := make([]*Sandbox, spawn.SlotsCount-1) // the first slot is the room's own
	for i := range all {
		all[i] = &Sandbox{}
		must.Do(t, r.add(all[i]))
		if all[i].slot != uint32(i+1) || r.find(all[i].number) != all[i] {
			t.Fatalf("sandbox %d has the slot %d, and its number %d is that of %p", i, all[i].slot, all[i].number, r.find(all[i].number))
		}
	}
	must.Is(t, r.add(&Sandbox{}), engine.ErrTooMany)
	gone := all[2]
	r.remove(gone)
	if r.find(gone.number) != nil {
		t.Error("a removed sandbox is still found")
	}
	slot, err := r.takeSlot()
	must.Do(t, err)
	must.Is(t, r.add(&Sandbox{}), engine.ErrTooMany)
	r.releaseSlot(slot)
	next := &Sandbox{}
	must.Do(t, r.add(next))
	if next.slot != gone.slot || next.number == gone.number || next.number <= all[len(all)-1].number {
		t.Errorf("after sandbox %d with the slot %d, sandbox %d has the slot %d", gone.number, gone.slot, next.number, next.slot)
	}
	if other := r.number(); r.find(other) != nil || other <= next.number {
		t.Errorf("another process got the number %d, after that of a sandbox, %d", other, next.number)
	}
}

// closesRoster checks that nothing is given after the close, and all again after another start.
func closesRoster(t *testing.T) {
	t.Parallel()
	r := newRoster()
	s := &Sandbox{}
	must.Do(t, r.add(s))
	if left := r.close(); !slices.Equal(left, []*Sandbox{s}) {
		t.Errorf("got %v, want the one that is left", left)
	}
	must.Is(t, r.add(&Sandbox{}), ErrRoomEnded)
	_, err := r.takeSlot()
	must.Is(t, err, ErrRoomEnded)
	if r.find(s.number) != s {
		t.Error("a sandbox that is left is not found")
	}
	r.open()
	must.Do(t, r.add(&Sandbox{}))
}
