package telemetry

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
)

// Names of the loggers inside a sandbox.
const (
	LoggerDaemon  = "envd"
	LoggerProcess = "process" // commands
	LoggerKernel  = "kernel"
)

// Inside adds a line to the log of a sandbox. The daemon inside the sandbox has written this line.
// Lines are untrusted. Inside drops lines that do not have the format of [slog.JSONHandler], and
// lines that arrive too fast.
func (r *Registry) Inside(id string, line []byte) {
	if !r.admit(id) {
		return
	}
	if e, ok := parse(line); ok {
		r.Add(id, e)
	}
}

// admit reports whether another line from inside may be kept.
func (r *Registry) admit(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := r.records[id]
	if rec == nil || !rec.bucket.take() {
		return false
	}
	if rec.bucket.refused > 0 {
		r.addLocked(rec, rec.bucket.missing())
	}
	return true
}

// parse parses a line of slog. It ignores the time in the line, and accepts only the loggers
// inside a sandbox.
func parse(line []byte) (Entry, bool) {
	var all map[string]any
	if err := json.Unmarshal(line, &all); err != nil {
		return Entry{}, false
	}
	e := Entry{Logger: LoggerDaemon}
	level, _ := all[slog.LevelKey].(string)
	message, _ := all[slog.MessageKey].(string)
	if err := e.Level.UnmarshalText([]byte(level)); err != nil || message == "" {
		return Entry{}, false
	}
	e.Message = message
	if name, _ := all[loggerKey].(string); name == LoggerProcess || name == LoggerKernel {
		e.Logger = name
	}
	for _, known := range []string{slog.TimeKey, slog.LevelKey, slog.MessageKey, loggerKey, "timestamp", "message"} {
		delete(all, known)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		e.Fields = append(e.Fields, Field{name, text(all[name])})
	}
	return e, true
}

// text returns a JSON value as the text of a field.
func text(value any) string {
	switch value := value.(type) {
	case string:
		return value
	case map[string]any, []any:
		encoded, err := json.Marshal(value)
		if err != nil {
			return ""
		}
		return string(encoded)
	}
	return fmt.Sprint(value)
}
