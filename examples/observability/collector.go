package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// collector keeps spans in memory.
type collector struct {
	mu    sync.Mutex
	spans []sdktrace.ReadOnlySpan
}

// ExportSpans stores spans that have ended.
func (c *collector) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spans = append(c.spans, spans...)
	return nil
}

// Shutdown has nothing to do.
func (c *collector) Shutdown(context.Context) error { return nil }

// print writes the spans as a tree, with their durations.
func (c *collector) print(w io.Writer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.SortFunc(c.spans, func(a, b sdktrace.ReadOnlySpan) int {
		return cmp.Compare(a.StartTime().UnixNano(), b.StartTime().UnixNano())
	})
	within := map[trace.SpanID][]sdktrace.ReadOnlySpan{}
	for _, span := range c.spans {
		within[span.Parent().SpanID()] = append(within[span.Parent().SpanID()], span)
	}
	var level func(parent trace.SpanID, depth int)
	level = func(parent trace.SpanID, depth int) {
		for _, span := range within[parent] {
			took := span.EndTime().Sub(span.StartTime()).Round(100 * time.Microsecond)
			fmt.Fprintf(w, "%-28s %8v %s\n", strings.Repeat("  ", depth)+span.Name(), took, span.Status().Description)
			level(span.SpanContext().SpanID(), depth+1)
		}
	}
	level(trace.SpanID{}, 0)
}
