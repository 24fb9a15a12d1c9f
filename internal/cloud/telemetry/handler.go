package telemetry

import (
	"context"
	"log/slog"
	"slices"
)

// Keys of attributes.
const (
	sandboxKey = "sandbox" // id of the sandbox
	loggerKey  = "logger"
)

// Logger returns a logger that writes to next. The logger also adds each record of at least level
// info to the log of a sandbox. The record's attribute "sandbox" is the id of this sandbox. In the
// sandbox's log, name is the logger of these entries. next may be nil.
func (r *Registry) Logger(next *slog.Logger, name string) *slog.Logger {
	if next == nil {
		next = slog.New(slog.DiscardHandler)
	}
	return slog.New(&handler{registry: r, next: next.Handler(), name: name})
}

// handler is a [slog.Handler].
type handler struct {
	registry *Registry
	next     slog.Handler
	name     string
	attrs    []slog.Attr // their names include the names of their groups
	group    string      // prefix of later attributes, with a dot at the end; or ""
}

func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || h.next.Enabled(ctx, level)
}

func (h *handler) Handle(ctx context.Context, record slog.Record) error {
	if record.Level >= slog.LevelInfo {
		h.keep(record)
	}
	if !h.next.Enabled(ctx, record.Level) {
		return nil
	}
	return h.next.Handle(ctx, record)
}

func (h *handler) keep(record slog.Record) {
	e := Entry{Level: record.Level, Logger: h.name, Message: record.Message}
	var sandbox string
	note := func(a slog.Attr, group string) {
		if a.Key == sandboxKey && group == "" {
			sandbox = a.Value.String()
			return
		}
		e.Fields = append(e.Fields, Field{group + a.Key, a.Value.Resolve().String()})
	}
	for _, a := range h.attrs {
		note(a, "")
	}
	record.Attrs(func(a slog.Attr) bool {
		note(a, h.group)
		return true
	})
	if sandbox != "" {
		h.registry.Add(sandbox, e)
	}
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	with.next = h.next.WithAttrs(attrs)
	with.attrs = slices.Clone(h.attrs)
	for _, a := range attrs {
		a.Key = h.group + a.Key
		with.attrs = append(with.attrs, a)
	}
	return &with
}

func (h *handler) WithGroup(name string) slog.Handler {
	with := *h
	with.next = h.next.WithGroup(name)
	if name != "" {
		with.group += name + "."
	}
	return &with
}
