package lifecycle

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/clip"
)

const (
	// maxEvents bounds the number of events that are kept. The texts of an event have at most 3 times
	// maxHow bytes, so that all events together take at most 12 MB.
	maxEvents = 10_000
	// minEvents is the number of events for which memory is allocated at first.
	minEvents = 64
)

// EventType is the type of an event, as clients receive it.
type EventType string

// Types of events. E2B's service has no EventRefused.
const (
	EventCreated EventType = "sandbox.lifecycle.created"
	EventUpdated EventType = "sandbox.lifecycle.updated"
	EventPaused  EventType = "sandbox.lifecycle.paused"
	EventResumed EventType = "sandbox.lifecycle.resumed"
	EventKilled  EventType = "sandbox.lifecycle.killed"
	// EventCheckpointed follows a snapshot or fork of the sandbox.
	EventCheckpointed EventType = "sandbox.lifecycle.checkpointed"
	EventRefused      EventType = "sandbox.network.refused"
)

// EventTypes returns all types of events.
func EventTypes() []EventType {
	return []EventType{EventCreated, EventUpdated, EventPaused, EventResumed, EventCheckpointed, EventKilled, EventRefused}
}

// Event is something that happened to a sandbox.
type Event struct {
	Number   int64 // counts from 1 in each log
	At       time.Time
	Type     EventType
	Sandbox  string
	Template string    // id of the template
	Build    string    // id of the build of the template; "": not known
	Started  time.Time // latest start or resume of the sandbox

	Reason  Reason    // of EventKilled, and of EventPaused if the sandbox ended and its earlier pause remains; otherwise ""
	Message string    // Reason in words; for EventUpdated, the part that changed: lifetime, network or resources
	EndAt   time.Time // new end of the lifetime, of an EventUpdated that changed it
	Host    string    // refused destination, with Port and Rule; only of EventRefused
	Port    int
	Rule    string
}

// EventLog keeps the latest events of all sandboxes. It is safe for concurrent use. It stores nothing
// about its readers: each reader remembers a number, and requests the events after this number.
type EventLog struct {
	instance string // random, so that ids of another log are recognised

	mu   sync.RWMutex // of readers the writer waits only for those that are reading
	ring []Event      // the event with number n is at (n-1) % maxEvents
	last int64        // number of the latest event
	more chan struct{}
}

func newEventLog() *EventLog {
	var random [10]byte
	_, _ = rand.Read(random[:]) // never fails
	text := hex.EncodeToString(random[:])
	return &EventLog{
		instance: text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-",
		ring:     make([]Event, 0, minEvents), more: make(chan struct{}),
	}
}

func (l *EventLog) add(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	e.Number, e.Message = l.last, clip.Line(e.Message, maxHow)
	e.Host, e.Template = clip.Line(e.Host, maxHow), clip.Line(e.Template, maxHow)
	if len(l.ring) < maxEvents {
		l.ring = append(l.ring, e)
	} else {
		l.ring[(e.Number-1)%maxEvents] = e
	}
	close(l.more)
	l.more = make(chan struct{})
}

// ID returns the id of the event with a number. The id of number 0 comes before all events.
func (l *EventLog) ID(number int64) string { return l.instance + fmt.Sprintf("%012x", number) }

// Number returns the number of the event with an id. ok is false if the text is no id of an event.
// earlier is true if the event may be one of an earlier log, as after a restart of the server. The
// number is then that of [EventLog.First].
func (l *EventLog) Number(id string) (number int64, earlier, ok bool) {
	if len(id) != len(l.instance)+12 {
		return 0, false, false
	}
	number, err := strconv.ParseInt(id[len(l.instance):], 16, 64)
	if err != nil || number < 0 {
		return 0, false, false
	}
	if id[:len(l.instance)] != l.instance {
		return l.First(), true, true
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	return number, false, number <= l.last
}

// Latest returns those events that match, the latest first. It leaves out the first offset events, and
// returns at most limit events. If ascending is set, the order is reversed: the oldest event is first.
// last is the number of the latest event in the log. match must be quick.
func (l *EventLog) Latest(match func(*Event) bool, offset, limit int, ascending bool) (page []Event, last int64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	first := l.last - int64(len(l.ring)) + 1
	for i := range int64(len(l.ring)) {
		number := l.last - i
		if ascending {
			number = first + i
		}
		e := &l.ring[(number-1)%maxEvents]
		switch {
		case !match(e):
		case offset > 0:
			offset--
		case len(page) == limit:
			return page, l.last
		default:
			page = append(page, *e)
		}
	}
	return page, l.last
}

// after returns those events after a number that match, the oldest first and at most limit. next is
// the number after which the next call continues. missed is the number of events after the given
// number that are no longer kept. more is closed at the next event.
func (l *EventLog) after(number int64, match func(*Event) bool, limit int) (page []Event, next, missed int64, more <-chan struct{}) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	missed = max(0, l.last-int64(len(l.ring))-number)
	for next = number + missed; next < l.last && len(page) < limit; next++ {
		if e := &l.ring[next%maxEvents]; match(e) {
			page = append(page, *e)
		}
	}
	return page, next, missed, l.more
}

// After returns those events after a number that match, the oldest first and at most limit. match must
// be quick. next is the number after which the next call continues. missed is the number of events
// after the given number that are no longer kept. If no event matches and no event is missed, After
// waits for an event until ctx ends.
func (l *EventLog) After(ctx context.Context, number int64, match func(*Event) bool, limit int) (page []Event, next, missed int64) {
	for {
		page, next, missed, more := l.after(number, match, limit)
		if len(page) > 0 || missed > 0 {
			return page, next, missed
		}
		number = next
		select {
		case <-more:
		case <-ctx.Done():
			return nil, next, 0
		}
	}
}

// First returns the number of the event before the oldest one that is kept.
func (l *EventLog) First() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.last - int64(len(l.ring))
}

// Events returns the log of events of the sandboxes.
func (r *Registry) Events() *EventLog { return r.events }

// Refused records that a connection of a sandbox was refused. The caller must bound the number of
// calls. Calls for unknown sandboxes have no effect.
func (r *Registry) Refused(id, host string, port int, rule string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec := r.records[id]; rec != nil {
		r.eventLocked(rec, Event{Type: EventRefused, Host: host, Port: port, Rule: rule})
	}
}

func (r *Registry) eventLocked(rec *record, e Event) {
	e.At, e.Sandbox, e.Started = r.nowLocked(), rec.ID, rec.StartedAt
	e.Template, e.Build = rec.Template.ID, rec.Template.Build
	r.events.add(e)
}

// changedLocked records an event if the sandbox was resumed or paused. before is the previous state of
// the sandbox. Creations are recorded by add, and ends by takeLocked.
func (r *Registry) changedLocked(rec *record, before State) {
	switch {
	case before == Resuming && rec.State == Running:
		r.eventLocked(rec, Event{Type: EventResumed})
	case before == Pausing && rec.State == Paused:
		r.eventLocked(rec, Event{Type: EventPaused, Reason: rec.fell.reason, Message: rec.fell.how})
		rec.fell = end{}
	}
}
