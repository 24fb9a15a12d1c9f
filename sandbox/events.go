package sandbox

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/e2bctl/e2bctl/api"
)

// EventType is the type of an [Event]. A service may use values other than the constants here.
type EventType = api.EventType

// Types of events. Only the local cloud has EventRefused.
const (
	EventCreated = api.EventCreated
	// EventUpdated follows a new timeout, new network rules or new resources.
	EventUpdated = api.EventUpdated
	EventPaused  = api.EventPaused
	EventResumed = api.EventResumed
	// EventCheckpointed follows a snapshot or fork of the sandbox.
	EventCheckpointed = api.EventCheckpointed
	// EventKilled is the end of a sandbox for any reason, see [Event].Reason.
	EventKilled = api.EventKilled
	// EventRefused is a connection or DNS question of a sandbox that was denied.
	EventRefused = api.EventRefused
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

// Events iterates over the events of all sandboxes, or of one, oldest first. It fetches each page when
// it is needed, and yields an error at most once, as the last item. E2B's service keeps events for 7
// days. The local cloud keeps the newest 10,000 since its start. At most 100 refused hosts of each
// sandbox become events. If the loop is slower than new events come, the local cloud drops the oldest
// ones, see [Event].Missed. E2B's service has no reasons, and is requested once a second for new events.
// With Follow, the iteration goes on after the service was unavailable for at most ten seconds, as
// during a restart.
func (c *Client) Events(ctx context.Context, p *EventsParams) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for e, err := range c.api.Sandboxes.Events(ctx, (*api.EventsParams)(p)) {
			if err != nil {
				err = fmt.Errorf("sandbox: events: %w", err)
			}
			if !yield(Event(e), err) {
				return
			}
		}
	}
}
