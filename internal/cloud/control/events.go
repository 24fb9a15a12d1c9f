package control

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

const (
	// eventsPage is the default number of events in an answer. maxEventsPage is the maximum number.
	// The source of both is E2B's documentation of its events API.
	eventsPage    = 10
	maxEventsPage = 100
	// eventsWait bounds the time for which a request waits for an event.
	eventsWait = 20 * time.Second
)

// eventAnswer is an event as clients receive it.
type eventAnswer struct {
	Version     string     `json:"version"`
	ID          string     `json:"id"`
	Type        string     `json:"type"`
	Time        time.Time  `json:"timestamp"`
	Data        *eventData `json:"eventData"`
	SandboxID   string     `json:"sandboxId"`
	ExecutionID string     `json:"sandboxExecutionId"` // one for each start or resume of the sandbox
	TemplateID  string     `json:"sandboxTemplateId"`
	BuildID     string     `json:"sandboxBuildId,omitempty"`
	TeamID      string     `json:"sandboxTeamId"`
}

// eventData is the further data of an event. E2B's service has only SetTimeout.
type eventData struct {
	SetTimeout *time.Time `json:"set_timeout,omitempty"`
	Reason     string     `json:"reason,omitempty"`
	Message    string     `json:"message,omitempty"`
	Host       string     `json:"host,omitempty"`
	Port       int        `json:"port,omitempty"`
	Rule       string     `json:"rule,omitempty"`
}

func (s *Service) listEvents(w http.ResponseWriter, r *http.Request) error {
	return s.answerEvents(w, r, "")
}

// sandboxEvents answers with the events of a sandbox, which may have ended long ago. Like the
// service, it answers with an empty list for an unknown sandbox.
func (s *Service) sandboxEvents(w http.ResponseWriter, r *http.Request) error {
	id, err := sandboxID(r)
	if err != nil {
		return err
	}
	return s.answerEvents(w, r, id)
}

// answerEvents answers with the events of the sandbox id, or of all sandboxes if id is "". The parameter
// "after", which E2B's service does not have, is the id of an event: answerEvents then answers with the
// events after this event, the oldest first. If there are no such events and the parameter "wait" is
// true, it waits until there is an event, at most for eventsWait.
func (s *Service) answerEvents(w http.ResponseWriter, r *http.Request, id string) error {
	query, err := parseQuery(r)
	if err != nil {
		return err
	}
	types, err := eventTypes(query)
	if err != nil {
		return err
	}
	limit, err := intParam(query, "limit", eventsPage, 1, maxEventsPage)
	if err != nil {
		return err
	}
	match := func(e *lifecycle.Event) bool {
		return (id == "" || e.Sandbox == id) && (len(types) == 0 || slices.Contains(types, e.Type))
	}
	log := s.sandboxes.Events()
	if after := query.Get("after"); after != "" {
		from, restarted, known := log.Number(after)
		if after == protocol.EventsStart {
			from, known = log.First(), true
		}
		if !known {
			return invalid("after: %.64q is not the id of an event", after)
		}
		wait, err := optionalBool(query, "wait")
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(r.Context(), eventsWait)
		defer cancel()
		if !wait {
			cancel()
		}
		page, next, missed := log.After(ctx, from, match, limit)
		if restarted {
			missed = protocol.EventsMissedUnknown
		}
		w.Header().Set(protocol.HeaderEventsMissed, strconv.FormatInt(missed, 10))
		writeEvents(w, log, page, next)
		return nil
	}
	offset, err := intParam(query, "offset", 0, 0, 1<<31-1)
	if err != nil {
		return err
	}
	ascending, err := optionalBool(query, "orderAsc")
	if err != nil {
		return err
	}
	page, last := log.Latest(match, offset, limit, ascending)
	writeEvents(w, log, page, last)
	return nil
}

func writeEvents(w http.ResponseWriter, log *lifecycle.EventLog, page []lifecycle.Event, next int64) {
	w.Header().Set(protocol.HeaderEventsNext, log.ID(next))
	answers := make([]eventAnswer, len(page))
	for i, e := range page {
		answers[i] = eventAnswer{
			Version: "v2", ID: log.ID(e.Number), Type: string(e.Type), Time: e.At.UTC(), Data: dataOf(e),
			SandboxID: e.Sandbox, ExecutionID: executionID(e.Sandbox, e.Started), TemplateID: e.Template, BuildID: e.Build, TeamID: teamID,
		}
	}
	writeJSON(w, http.StatusOK, answers)
}

// dataOf returns the data of an event; nil if there is none.
func dataOf(e lifecycle.Event) *eventData {
	data := eventData{Reason: string(e.Reason), Message: e.Message, Host: e.Host, Port: e.Port, Rule: e.Rule}
	if !e.EndAt.IsZero() {
		end := e.EndAt.UTC()
		data.SetTimeout = &end
	}
	if data == (eventData{}) {
		return nil
	}
	return &data
}

// executionID returns an id that differs for each start or resume of a sandbox.
func executionID(sandbox string, started time.Time) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", sandbox, started.UnixNano()))
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// eventTypes returns the types of events that a request selects. If the result is empty, the request
// selects all types.
func eventTypes(query *query) (types []lifecycle.EventType, err error) {
	known := lifecycle.EventTypes()
	for _, name := range query.All("types") {
		if !slices.Contains(known, lifecycle.EventType(name)) {
			var names []string
			for _, one := range known {
				names = append(names, string(one))
			}
			return nil, invalid("types: there are no events of type %.64q, only %s", name, strings.Join(names, ", "))
		}
		types = append(types, lifecycle.EventType(name))
	}
	return types, nil
}

// intParam returns the value of a parameter, which must be a number from least to most. Without the
// parameter it returns fallback.
func intParam(query *query, name string, fallback, least, most int) (int, error) {
	text := query.Get(name)
	if text == "" {
		return fallback, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, invalid("%s must be a number from %d to %d", name, least, most)
	}
	return n, nil
}

// optionalBool returns the value of a parameter, which must be true or false. Without the parameter
// it returns false.
func optionalBool(query *query, name string) (bool, error) {
	switch query.Get(name) {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	}
	return false, invalid("%s must be true or false", name)
}
