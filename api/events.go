package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/e2bctl/e2bctl/internal/protocol"
)

// EventType is the type of an [Event]. A service may use values other than the constants here.
type EventType string

// Types of events. Only the local cloud has EventRefused.
const (
	EventCreated EventType = "sandbox.lifecycle.created"
	// EventUpdated follows a new timeout, new network rules or new resources.
	EventUpdated EventType = "sandbox.lifecycle.updated"
	EventPaused  EventType = "sandbox.lifecycle.paused"
	EventResumed EventType = "sandbox.lifecycle.resumed"
	// EventCheckpointed follows a snapshot or fork of the sandbox.
	EventCheckpointed EventType = "sandbox.lifecycle.checkpointed"
	// EventKilled is the end of a sandbox for any reason, see [Event].Reason.
	EventKilled EventType = "sandbox.lifecycle.killed"
	// EventRefused is a connection or DNS question of a sandbox that was denied.
	EventRefused EventType = "sandbox.network.refused"
)

// Event is something that happened to a sandbox. The source of the fields is E2B's documentation of its
// events API.
type Event struct {
	ID          string
	Type        EventType
	Time        time.Time
	SandboxID   string
	TemplateID  string
	BuildID     string // the build of the template; empty if it is not known
	ExecutionID string // a different one for each start or resume of the sandbox

	// Reason is the reason for the end of the sandbox: "expired", "idle", "killed", "out_of_memory",
	// "died" or "server_gone". Message is the reason in words. Only the local cloud sends them, with an
	// EventKilled, and with an EventPaused if the sandbox ended and returned to its latest pause. With an
	// EventUpdated, Message is the part that changed: "lifetime", "network" or "resources".
	Reason, Message string
	// EndAt is the new end of the lifetime if an EventUpdated changed it. Otherwise EndAt is zero.
	EndAt time.Time
	// Host and Port are the destination of an EventRefused. Port is 0 for a DNS question. Rule is the
	// rule that denied the destination.
	Host string
	Port int
	Rule string

	// Missed is the number of events before this one that the service no longer had when they
	// were requested. It counts events of all sandboxes and types. It is -1 if the number is unknown,
	// because the service was started anew.
	Missed int64
}

// UnmarshalJSON decodes an event of the service.
func (e *Event) UnmarshalJSON(text []byte) error {
	var wire struct {
		ID          string    `json:"id"`
		Type        EventType `json:"type"`
		Time        time.Time `json:"timestamp"`
		SandboxID   string    `json:"sandboxId"`
		TemplateID  string    `json:"sandboxTemplateId"`
		BuildID     string    `json:"sandboxBuildId"`
		ExecutionID string    `json:"sandboxExecutionId"`
		Data        struct {
			EndAt   time.Time `json:"set_timeout"`
			Reason  string    `json:"reason"`
			Message string    `json:"message"`
			Host    string    `json:"host"`
			Port    int       `json:"port"`
			Rule    string    `json:"rule"`
		} `json:"eventData"`
	}
	if err := json.Unmarshal(text, &wire); err != nil {
		return err
	}
	*e = Event{
		ID: wire.ID, Type: wire.Type, Time: wire.Time, SandboxID: wire.SandboxID, TemplateID: wire.TemplateID, BuildID: wire.BuildID, ExecutionID: wire.ExecutionID,
		Reason: wire.Data.Reason, Message: wire.Data.Message, EndAt: wire.Data.EndAt, Host: wire.Data.Host, Port: wire.Data.Port, Rule: wire.Data.Rule,
	}
	return nil
}

// EventsParams selects events. The zero value selects all existing events.
type EventsParams struct {
	// SandboxID is the id of a sandbox, which may have ended; empty means all sandboxes.
	SandboxID string
	// Types are the types of the events; empty means all.
	Types []EventType
	// Last is the number of existing events to return, at most 10,000: the newest ones. Zero means all
	// existing events.
	Last int
	// Follow waits for new events until ctx ends.
	Follow bool
}

const (
	maxEventsPage = 100
	maxLastEvents = 10_000
	// maxEventsOffset bounds the pages that are read back while more events come than a page has.
	maxEventsOffset = 2 * maxLastEvents
	// pollEvents is the interval between requests for new events, if the service does not wait for them.
	pollEvents = time.Second
	// maxEventsOutage is the longest time without the service after which a reader goes on.
	maxEventsOutage = 10 * time.Second
)

// Events iterates over the events of sandboxes, oldest first. It fetches each page when it is needed.
// It yields an error at most once, as the last item. E2B's service keeps events for 7 days. The local
// cloud keeps the newest 10,000 events since its start. If events come faster than the caller reads
// them, the local cloud drops the oldest events: see [Event].Missed. With Follow, the iteration goes on
// after the service was unavailable for at most ten seconds, as during a restart. If a service does not
// have the routes for events, the error is [ErrNotFound].
func (s *SandboxService) Events(ctx context.Context, p *EventsParams) iter.Seq2[Event, error] {
	var params EventsParams
	if p != nil {
		params = *p
	}
	return func(yield func(Event, error) bool) {
		r := &eventReader{service: s, params: params, yield: func(e Event) bool { return yield(e, nil) }}
		if err := r.run(ctx); err != nil && !errors.Is(err, errEnough) {
			yield(Event{}, err)
		}
	}
}

// errEnough means that the caller wants no further events.
var errEnough = errors.New("enough events")

// eventReader reads events page by page.
type eventReader struct {
	service *SandboxService
	params  EventsParams
	yield   func(Event) bool

	after  string // the id after which further events come; empty if the service does not send such ids
	missed int64  // the number of events that are missing before the next one
	newest string // the id of the newest event; empty if there is none
}

func (r *eventReader) run(ctx context.Context) error {
	if r.params.Last < 0 || r.params.Last > maxLastEvents {
		return fmt.Errorf("api: the last %d events: want 1 to %d: %w", r.params.Last, maxLastEvents, ErrInvalidArgument)
	}
	existing := r.all
	if r.params.Last > 0 {
		existing = r.last
	}
	if err := existing(ctx); err != nil || !r.params.Follow {
		return err
	}
	var lost time.Time // since when the service is unavailable; zero: it is not
	for {
		err := r.further(ctx)
		switch {
		case err == nil:
			lost = time.Time{}
			continue
		case lost.IsZero():
			lost = time.Now()
		}
		if !errors.Is(err, ErrUnavailable) || time.Since(lost) > maxEventsOutage {
			return err
		}
		if !sleep(ctx, pollEvents) {
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// further waits for further events and reads them.
func (r *eventReader) further(ctx context.Context) error {
	if r.after != "" {
		_, err := r.next(ctx, "true")
		return err
	}
	if !sleep(ctx, pollEvents) {
		<-ctx.Done() // sleep does not wait for a deadline that comes first
		return context.Cause(ctx)
	}
	return r.poll(ctx)
}

// all reads all existing events.
func (r *eventReader) all(ctx context.Context) error {
	r.after = protocol.EventsStart
	for full := true; full; {
		page, err := r.next(ctx, "false")
		if err != nil {
			return err
		}
		if r.after == "" {
			return r.allByOffset(ctx)
		}
		full = len(page) == maxEventsPage
	}
	return nil
}

// next reads the events after r.after. If the service does not know the parameter "after", next sets
// r.after to "" and returns no events.
func (r *eventReader) next(ctx context.Context, wait string) ([]Event, error) {
	page, header, err := r.fetch(ctx, url.Values{"after": {r.after}, "wait": {wait}})
	if err != nil {
		return nil, err
	}
	if r.after = header.Get(protocol.HeaderEventsNext); r.after == "" {
		return nil, nil
	}
	missed, _ := strconv.ParseInt(header.Get(protocol.HeaderEventsMissed), 10, 64)
	if missed < 0 || r.missed < 0 {
		r.missed = protocol.EventsMissedUnknown
	} else {
		r.missed += missed
	}
	return page, r.emit(page)
}

// allByOffset reads all existing events of a service that does not know the parameter "after".
func (r *eventReader) allByOffset(ctx context.Context) error {
	for offset := 0; ; offset += maxEventsPage {
		page, _, err := r.fetch(ctx, url.Values{"orderAsc": {"true"}, "offset": {strconv.Itoa(offset)}})
		if err != nil {
			return err
		}
		if err := r.emit(page); err != nil || len(page) < maxEventsPage {
			return err
		}
	}
}

// last reads the newest existing events.
func (r *eventReader) last(ctx context.Context) error {
	events, err := r.back(ctx, r.params.Last, func(header http.Header) { r.after = header.Get(protocol.HeaderEventsNext) })
	if err != nil {
		return err
	}
	return r.emit(events)
}

// poll reads the events after r.newest, from a service that does not know the parameter "after".
func (r *eventReader) poll(ctx context.Context) error {
	events, err := r.back(ctx, maxLastEvents, func(http.Header) {})
	if err != nil {
		return err
	}
	return r.emit(events)
}

// back reads events, from the newest one back. It stops at r.newest, and after limit events. It returns
// the events in the opposite order, oldest first. It calls first with the header of the first answer.
func (r *eventReader) back(ctx context.Context, limit int, first func(http.Header)) (events []Event, err error) {
	seen := map[string]bool{}
	var next string // end of the list at the first answer; "" if the service does not report it
	for offset, more := 0, true; more && offset < maxEventsOffset; offset += maxEventsPage {
		page, header, err := r.fetch(ctx, url.Values{"offset": {strconv.Itoa(offset)}})
		if err != nil {
			return nil, err
		}
		if offset == 0 {
			first(header)
			next = header.Get(protocol.HeaderEventsNext)
		}
		more = len(page) == maxEventsPage
		// Events that are new since the first answer have moved the others to later pages. They are told by
		// their times only if there may be any, because the clock of the service can be set back.
		moved := next == "" || next != header.Get(protocol.HeaderEventsNext)
		page = slices.DeleteFunc(page, func(e Event) bool { return seen[e.ID] || moved && len(events) > 0 && e.Time.After(events[0].Time) })
		for _, e := range page {
			seen[e.ID] = e.ID != ""
		}
		known := slices.IndexFunc(page, func(e Event) bool { return r.newest != "" && e.ID == r.newest })
		if known >= 0 {
			page, more = page[:known], false
		}
		if events = append(events, page...); len(events) >= limit {
			events, more = events[:limit], false
		}
	}
	slices.Reverse(events)
	return events, nil
}

func (r *eventReader) emit(events []Event) error {
	for _, e := range events {
		if e.ID == r.newest && e.ID != "" {
			continue // a new event has moved the pages while they were read
		}
		e.Missed, r.missed, r.newest = r.missed, 0, e.ID
		if !r.yield(e) {
			return errEnough
		}
	}
	return nil
}

// fetch requests a page of events.
func (r *eventReader) fetch(ctx context.Context, query url.Values) ([]Event, http.Header, error) {
	path := "/events/sandboxes"
	if id := r.params.SandboxID; id != "" {
		var err error
		if path, err = objectPath(path+"/", "sandbox", id, ""); err != nil {
			return nil, nil, err
		}
	}
	query.Set("limit", strconv.Itoa(maxEventsPage))
	for _, t := range r.params.Types {
		query.Add("types", string(t))
	}
	var page []*Event
	head, err := r.service.client.do(ctx, call{method: http.MethodGet, path: path, query: query}, &page)
	if err != nil {
		return nil, nil, err
	}
	events, err := values("an event", page)
	return events, head.header, err
}
