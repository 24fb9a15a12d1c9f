package control

import (
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/telemetry"
)

const (
	// maxEntries is the largest page of a log, and the default page size.
	maxEntries = 1000
	// maxSearch bounds the length of the text to search for.
	maxSearch = 256
)

// sandboxEntry is an entry of a sandbox's log, as clients receive it.
type sandboxEntry struct {
	Timestamp time.Time         `json:"timestamp"`
	Message   string            `json:"message"`
	Level     string            `json:"level"`
	Fields    map[string]string `json:"fields"`
}

// logLine is a log entry in the first generation of the API. Line is a JSON object as text.
type logLine struct {
	Timestamp time.Time `json:"timestamp"`
	Line      string    `json:"line"`
}

// levels maps the names of levels in requests to the levels.
var levels = map[string]slog.Level{
	"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
}

func levelName(level slog.Level) string {
	switch {
	case level >= slog.LevelError:
		return "error"
	case level >= slog.LevelWarn:
		return "warn"
	case level >= slog.LevelInfo:
		return "info"
	}
	return "debug"
}

// leastLevel reads the least severe level that a request selects. The default is the lowest level.
func leastLevel(query *query) (slog.Level, error) {
	name := query.Get("level")
	if name == "" {
		return slog.LevelDebug, nil
	}
	level, known := levels[name]
	if !known {
		return level, invalid("level must be debug, info, warn or error")
	}
	return level, nil
}

// logs returns a handler for the log of a sandbox that exists or ended not long ago.
func (s *Service) logs(answer func(w http.ResponseWriter, r *http.Request, id string, query *query) error) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		query, err := parseQuery(r)
		if err != nil {
			return err
		}
		id, err := sandboxID(r)
		if err != nil {
			return err
		}
		if _, kept := s.telemetry.Logs(id, telemetry.Query{Limit: 1}); !kept {
			if _, err := s.sandboxes.Get(id); err != nil {
				return err
			}
		}
		return answer(w, r, id, query)
	}
}

// logs1 answers in the form of the first generation, oldest entries first. Clients of the first
// generation request the entries after their latest entry, with a resolution of one millisecond.
// Therefore a page never ends in the middle of a millisecond, and has no entries of the current
// millisecond.
func (s *Service) logs1(w http.ResponseWriter, r *http.Request, id string, query *query) error {
	from, err := millisecond(query, "start")
	if err != nil {
		return err
	}
	limit, err := entryLimit(query.Get("limit"), math.MaxInt32)
	if err != nil {
		return err
	}
	limit = min(limit, maxEntries)
	next := time.Now().Truncate(time.Millisecond).Add(time.Millisecond)
	select {
	case <-time.After(time.Until(next)):
	case <-r.Context().Done():
		return context.Cause(r.Context())
	}
	entries, _ := s.telemetry.Logs(id, telemetry.Query{From: from, Until: next, Level: slog.LevelDebug, Limit: limit, Whole: true})
	lines, all := make([]logLine, len(entries)), make([]sandboxEntry, len(entries))
	for i, e := range entries {
		all[i] = entryOf(e)
		lines[i] = logLine{all[i].Timestamp, line(all[i])}
	}
	writeJSON(w, http.StatusOK, map[string]any{"logs": lines, "logEntries": all})
	return nil
}

// line returns an entry as a JSON object. The entry's fields are members of the same object.
func line(e sandboxEntry) string {
	object := map[string]string{}
	for name, value := range e.Fields {
		object[name] = value
	}
	object["level"], object["message"] = e.Level, e.Message
	text, err := json.Marshal(object)
	if err != nil {
		panic(err) // unreachable: all values are strings
	}
	return string(text)
}

// logs2 answers in the form of the second generation.
func (s *Service) logs2(w http.ResponseWriter, _ *http.Request, id string, query *query) error {
	q, err := parseLogQuery(query)
	if err != nil {
		return err
	}
	entries, _ := s.telemetry.Logs(id, q)
	all := make([]sandboxEntry, len(entries))
	for i, e := range entries {
		all[i] = entryOf(e)
	}
	writeJSON(w, http.StatusOK, map[string]any{"logs": all})
	return nil
}

func parseLogQuery(query *query) (q telemetry.Query, err error) {
	cursor, err := millisecond(query, "cursor")
	if err != nil {
		return q, err
	}
	switch query.Get("direction") {
	case "", "backward":
		q.Backward, q.Until = true, cursor
	case "forward":
		q.From = cursor
	default:
		return q, invalid("direction must be forward or backward")
	}
	if q.Limit, err = entryLimit(query.Get("limit"), maxEntries); err != nil {
		return q, err
	}
	if q.Level, err = leastLevel(query); err != nil {
		return q, err
	}
	if q.Search = query.Get("search"); len([]rune(q.Search)) > maxSearch {
		return q, invalid("search must have at most %d characters", maxSearch)
	}
	return q, nil
}

func entryOf(e telemetry.Entry) sandboxEntry {
	fields := map[string]string{}
	for _, f := range e.Fields {
		fields[f.Name] = f.Value
	}
	fields["logger"] = e.Logger
	return sandboxEntry{Timestamp: e.Time.UTC(), Message: e.Message, Level: levelName(e.Level), Fields: fields}
}

// millisecond reads a time of the query in milliseconds. It returns the zero time if the
// parameter is absent.
func millisecond(query *query, name string) (time.Time, error) {
	text := query.Get(name)
	if text == "" {
		return time.Time{}, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return time.Time{}, invalid("%s must be a time in milliseconds since 1970", name)
	}
	return time.UnixMilli(n), nil
}

// entryLimit parses the maximum number of entries on a page of a log.
func entryLimit(text string, most int) (int, error) {
	if text == "" {
		return maxEntries, nil
	}
	limit, err := strconv.Atoi(text)
	if err != nil || limit < 1 || limit > most {
		return 0, invalid("limit must be between 1 and %d", most)
	}
	return limit, nil
}
