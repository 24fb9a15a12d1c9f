package lifecycle

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Position is the place of a sandbox in a list: by start time, newest first, then by id.
type Position struct {
	StartedAt time.Time
	ID        string
}

// Position returns the place of the sandbox.
func (sb *Sandbox) Position() Position { return Position{sb.StartedAt, sb.ID} }

// Compare returns a negative number if p comes before q, and 0 if they are the same.
func (p Position) Compare(q Position) int {
	return cmp.Or(q.StartedAt.Compare(p.StartedAt), strings.Compare(p.ID, q.ID))
}

// order has records by their positions, the last one first: a sandbox that starts is
// appended.
type order struct{ all []*record }

// search returns the index of the record at a position, or where it would be.
func (o *order) search(p Position) (int, bool) {
	return slices.BinarySearchFunc(o.all, p, func(rec *record, p Position) int { return p.Compare(rec.position) })
}

// next returns the first record behind a position, or of all for nil; ascending is the exact
// reverse. It returns nil behind the last.
func (o *order) next(after *Position, ascending bool) *record {
	i, found := 0, false
	if after != nil {
		i, found = o.search(*after)
	} else if !ascending {
		i = len(o.all)
	}
	switch {
	case !ascending:
		i--
	case found:
		i++
	}
	if i < 0 || i >= len(o.all) {
		return nil
	}
	return o.all[i]
}

// placeLocked puts a record where a list is to find it now: that of those that run, that of
// those that do not, or nowhere.
func (r *Registry) placeLocked(rec *record) {
	var to *order
	switch {
	case r.records[rec.ID] != rec || table[onGet][rec.State] != act:
	case rec.Runs():
		to = &r.up
	default:
		to = &r.down
	}
	if rec.order == to && rec.position.Compare(rec.Position()) == 0 {
		return
	}
	if rec.order != nil {
		i, _ := rec.order.search(rec.position)
		rec.order.all = slices.Delete(rec.order.all, i, i+1)
	}
	rec.order, rec.position = to, rec.Position()
	if to != nil {
		i, _ := to.search(rec.position)
		to.all = slices.Insert(to.all, i, rec)
	}
}

// A Query says which sandboxes a list has.
type Query struct {
	Running, Paused bool                   // those that run, and all others
	StartedAfter    time.Time              // or at it; zero: all
	Match           func(sb *Sandbox) bool // nil: all. It must be quick, and must not use the registry.
	Ascending       bool                   // the exact reverse of the order of positions
	After           *Position              // only those behind it; nil: all
	Limit           int                    // at most so many; 0: all
}

// Page returns the sandboxes that match, in their order. It looks at none behind the last one
// that it returns, at none before q.After, and at none in a state that is not asked for.
func (r *Registry) Page(q Query) []*Sandbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	after := q.After
	if q.Ascending && !q.StartedAfter.IsZero() {
		// Before all that started then: no id has this byte.
		if oldest := (Position{q.StartedAfter, "\xff"}); after == nil || oldest.Compare(*after) < 0 {
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
			continue // it has ended, and is elsewhere now
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

func (r *Registry) nextLocked(q *Query, after *Position) *record {
	var next *record
	for _, o := range []struct {
		*order
		asked bool
	}{{&r.up, q.Running}, {&r.down, q.Paused}} {
		if !o.asked {
			continue
		}
		rec := o.next(after, q.Ascending)
		if next == nil || rec != nil && (rec.position.Compare(next.position) < 0) != q.Ascending {
			next = rec
		}
	}
	return next
}

// Running returns how many of the sandboxes that run match, whatever page is asked for.
// Without conditions it looks at none of them.
func (r *Registry) Running(q Query) int {
	if q.Match == nil && q.StartedAfter.IsZero() {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.up.all)
	}
	n := 0
	r.Page(Query{Running: true, StartedAfter: q.StartedAfter, Match: func(sb *Sandbox) bool {
		if q.Match == nil || q.Match(sb) {
			n++
		}
		return false // nothing is copied
	}})
	return n
}
