package lifecycle

import (
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/ordered"
)

// Position returns the position of the sandbox in lists. Lists are ordered by start time.
func (sb *Sandbox) Position() ordered.Position { return ordered.Position{At: sb.StartedAt, ID: sb.ID} }

// listed orders records by the position that each record had when it was inserted. The position of a
// sandbox may differ from that position, because a sandbox can be started again.
var listed ordered.By[*record] = func(rec *record) ordered.Position { return rec.position }

// placeLocked moves a record to the list to which it now belongs: up, down, or no list.
func (r *Registry) placeLocked(rec *record) {
	var to *[]*record
	switch {
	case r.records[rec.ID] != rec || table[onGet][rec.State] != act:
	case rec.Runs():
		to = &r.up
	default:
		to = &r.down
	}
	if rec.list == to && rec.position.Compare(rec.Position()) == 0 {
		return
	}
	if rec.list != nil {
		*rec.list = listed.Delete(*rec.list, rec.position)
	}
	rec.list, rec.position = to, rec.Position()
	if to != nil {
		*to = listed.Put(*to, rec)
	}
}

// A Query selects sandboxes for a list, and the order of the list.
type Query struct {
	Running, Paused bool                   // select sandboxes that run, and sandboxes that do not run
	StartedAfter    time.Time              // earliest start time; zero: no bound
	Match           func(sb *Sandbox) bool // additional condition; nil: none; must be quick and must not use the registry
	Ascending       bool                   // reverses the order
	After           *ordered.Position      // only sandboxes that follow this position; nil: all
	Limit           int                    // maximum number; 0: no limit
}

// Page returns the sandboxes that match q, in order. It checks only sandboxes in the states that q
// selects. It begins after q.After, and stops as soon as it has found q.Limit sandboxes.
func (r *Registry) Page(q Query) []*Sandbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	after := q.After
	if q.Ascending && !q.StartedAfter.IsZero() {
		// The position precedes all sandboxes with this start time, because no id contains this
		// byte.
		if oldest := (ordered.Position{At: q.StartedAfter, ID: "\xff"}); after == nil || oldest.Compare(*after) < 0 {
			after = &oldest
		}
	}
	var found []*Sandbox
	up, down := r.afterLocked(&q, after)
	for {
		rec := takeNext(&up, &down, q.Ascending)
		if rec == nil || !q.Ascending && rec.StartedAt.Before(q.StartedAfter) {
			return found
		}
		if r.noticeLocked(rec, nil) != nil { // the sandbox has ended, and may be in another list now
			up, down = r.afterLocked(&q, after)
			continue
		}
		after = &rec.position
		if q.Match != nil && !q.Match(&rec.Sandbox) {
			continue
		}
		found = append(found, new(rec.Sandbox))
		if len(found) == q.Limit {
			return found
		}
	}
}

// afterLocked returns the parts of the lists up and down that q selects and that follow a position.
func (r *Registry) afterLocked(q *Query, after *ordered.Position) (up, down []*record) {
	if q.Running {
		up = listed.After(r.up, after, q.Ascending)
	}
	if q.Paused {
		down = listed.After(r.down, after, q.Ascending)
	}
	return up, down
}

// takeNext removes the record that comes first from the part that has it. It returns nil if both are
// empty.
func takeNext(up, down *[]*record, ascending bool) *record {
	first, rest, ok := listed.Next(*up, ascending)
	other, otherRest, otherOK := listed.Next(*down, ascending)
	if otherOK && (!ok || (other.position.Compare(first.position) < 0) != ascending) {
		*down = otherRest
		return other
	}
	if ok {
		*up = rest
	}
	return first
}

// Running returns the number of running sandboxes that match, on all pages. If q has no conditions,
// Running does not check each sandbox.
func (r *Registry) Running(q Query) int {
	if q.Match == nil && q.StartedAfter.IsZero() {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.up)
	}
	n := 0
	r.Page(Query{Running: true, StartedAfter: q.StartedAfter, Match: func(sb *Sandbox) bool {
		if q.Match == nil || q.Match(sb) {
			n++
		}
		return false // avoids a copy
	}})
	return n
}
