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
	for {
		rec := r.nextLocked(&q, after)
		if rec == nil || !q.Ascending && rec.StartedAt.Before(q.StartedAfter) {
			return found
		}
		if r.noticeLocked(rec, nil) != nil {
			continue // the sandbox has ended, and may be in another list now
		}
		after = new(rec.position)
		if q.Match != nil && !q.Match(&rec.Sandbox) {
			continue
		}
		found = append(found, new(rec.Sandbox))
		if len(found) == q.Limit {
			return found
		}
	}
}

func (r *Registry) nextLocked(q *Query, after *ordered.Position) *record {
	var next *record
	for _, list := range []struct {
		all   []*record
		asked bool
	}{{r.up, q.Running}, {r.down, q.Paused}} {
		if !list.asked {
			continue
		}
		rec, ok := listed.Next(list.all, after, q.Ascending)
		if next == nil || ok && (rec.position.Compare(next.position) < 0) != q.Ascending {
			next = rec
		}
	}
	return next
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
