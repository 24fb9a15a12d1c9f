package otel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/state"
)

// recorded returns a tracer, and a function that returns the only span that has ended since its last call.
func recorded(t *testing.T, content bool) (tracer, func() tracetest.SpanStub) {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	tr := newTracer(sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)), &Params{Content: content})
	return tr, func() tracetest.SpanStub {
		t.Helper()
		defer exporter.Reset()
		spans := exporter.GetSpans()
		if len(spans) != 1 {
			t.Fatalf("got %d spans, want one that has ended", len(spans))
		}
		return spans[0]
	}
}

// answering is a service that answers each request with a sandbox.
type answering struct{}

func (answering) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"sandboxID":"i0123456789abcdefghij","templateID":"base","clientID":"c","envdVersion":"0.6.13"}`)
	return w.Result(), nil
}

// newBox returns a sandbox that only has its id.
func newBox(t *testing.T) *sandbox.Sandbox {
	t.Helper()
	client, err := sandbox.NewClient(sandbox.WithTransport(answering{}), sandbox.WithAPIKey("e2b_0000000000000000000000000000000000000000"))
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, client.Close()) })
	box, err := client.Connect(t.Context(), "i0123456789abcdefghij")
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, box.Detach()) })
	return box
}

// TestKindsOfErrors checks what metrics and spans say about an error.
func TestKindsOfErrors(t *testing.T) {
	t.Parallel()
	raised := &sandbox.ExecutionError{Name: "ValueError", Value: "a secret"}
	exit := &sandbox.ExitError{Result: &sandbox.CommandResult{ExitCode: 3}}
	for _, tt := range []struct {
		err               error
		kind, description string
	}{
		{raised, "exception", "ValueError"}, {exit, "exit", "the command ended with another status than 0"}, {sandbox.ErrGone, "gone", sandbox.ErrGone.Error()},
		{context.Canceled, "canceled", "context canceled"}, {context.DeadlineExceeded, "timeout", "context deadline exceeded"}, {errors.New("other"), "_OTHER", "other"},
	} {
		for _, err := range []error{tt.err, fmt.Errorf("call: %w", tt.err)} {
			if got := errorType(err); got != tt.kind {
				t.Errorf("%v: got %s, want %s", err, got, tt.kind)
			}
		}
		tr, span := recorded(t, false)
		_, done := tr.connect(t.Context(), "i")
		done(nil, tt.err)
		if got := span().Status; got != (sdktrace.Status{Code: codes.Error, Description: tt.description}) {
			t.Errorf("%v: got the status %+v, want %q", tt.err, got, tt.description)
		}
	}
}

// TestSpans checks the name, the kind, the attributes and the status of the span of each kind of call.
func TestSpans(t *testing.T) {
	t.Parallel()
	arguments, err := state.FromJSON([]byte(`{"a":1}`))
	must.Do(t, err)
	raised := &sandbox.ExecutionError{Name: "ValueError", Value: "bad"}
	box, broken := newBox(t), errors.New("broken")
	step := func(final bool, count int, raised *sandbox.ExecutionError) *agent.Step {
		return &agent.Step{Final: final, Execution: sandbox.Execution{Count: count, Error: raised}}
	}
	for name, tt := range map[string]struct {
		call    func(tr tracer)
		span    string
		kind    trace.SpanKind
		want    map[string]any
		content map[string]any // these in addition, with content
		status  sdktrace.Status
	}{
		"create that fails": {func(tr tracer) { _, done := tr.create(t.Context(), "base"); done(nil, broken) }, "sandbox.create", trace.SpanKindClient,
			map[string]any{"e2b.template": "base"}, nil, sdktrace.Status{Code: codes.Error, Description: "broken"}},
		"create": {func(tr tracer) { _, done := tr.create(t.Context(), "base"); done(box, nil) }, "sandbox.create", trace.SpanKindClient,
			map[string]any{"e2b.template": "base", "e2b.sandbox.id": box.ID()}, nil, sdktrace.Status{}},
		"connect": {func(tr tracer) { _, done := tr.connect(t.Context(), "i"); done(box, nil) }, "sandbox.connect", trace.SpanKindClient, map[string]any{"e2b.sandbox.id": "i"}, nil, sdktrace.Status{}},
		"command": {func(tr tracer) {
			_, done := tr.command(t.Context(), box, "ls")
			done(&sandbox.CommandResult{ExitCode: 0}, nil)
		}, "sandbox.command", trace.SpanKindClient, map[string]any{"e2b.sandbox.id": box.ID(), "process.exit.code": int64(0)}, map[string]any{"process.command_line": "ls"}, sdktrace.Status{}},
		"command without a result": {func(tr tracer) { _, done := tr.command(t.Context(), box, "ls"); done(nil, nil) },
			"sandbox.command", trace.SpanKindClient, map[string]any{"e2b.sandbox.id": box.ID()}, map[string]any{"process.command_line": "ls"}, sdktrace.Status{}},
		"command that breaks": {func(tr tracer) {
			_, done := tr.command(t.Context(), box, "ls")
			done(&sandbox.CommandResult{ExitCode: 7}, broken)
		}, "sandbox.command", trace.SpanKindClient, map[string]any{"e2b.sandbox.id": box.ID()}, map[string]any{"process.command_line": "ls"}, sdktrace.Status{Code: codes.Error, Description: "broken"}},
		"command that fails": {func(tr tracer) {
			_, done := tr.command(t.Context(), box, "ls")
			done(nil, &sandbox.ExitError{Result: &sandbox.CommandResult{ExitCode: 3}})
		}, "sandbox.command", trace.SpanKindClient, map[string]any{"e2b.sandbox.id": box.ID(), "process.exit.code": int64(3)}, map[string]any{"process.command_line": "ls"},
			sdktrace.Status{Code: codes.Error, Description: "the command ended with another status than 0"}},
		"code": {func(tr tracer) { _, done := tr.code(t.Context(), box, "1"); done(&sandbox.Execution{Count: 1}, nil) },
			"sandbox.code", trace.SpanKindClient, map[string]any{"e2b.sandbox.id": box.ID(), "e2b.code.execution_count": int64(1)}, map[string]any{"e2b.code.text": "1"}, sdktrace.Status{}},
		"code without a result": {func(tr tracer) { _, done := tr.code(t.Context(), box, "1"); done(nil, broken) },
			"sandbox.code", trace.SpanKindClient, map[string]any{"e2b.sandbox.id": box.ID()}, map[string]any{"e2b.code.text": "1"}, sdktrace.Status{Code: codes.Error, Description: "broken"}},
		"step": {func(tr tracer) { _, done := tr.step(t.Context(), 2, "1"); done(step(true, 0, nil), nil) },
			"agent.step", trace.SpanKindInternal, map[string]any{"e2b.run.step": int64(2), "e2b.run.final": true}, map[string]any{"e2b.code.text": "1"}, sdktrace.Status{}},
		"step that raises": {func(tr tracer) { _, done := tr.step(t.Context(), 2, "1"); done(step(false, 5, raised), nil) }, "agent.step", trace.SpanKindInternal,
			map[string]any{"e2b.run.step": int64(2), "e2b.run.final": false, "e2b.code.execution_count": int64(5), "exception.type": "ValueError"},
			map[string]any{"e2b.code.text": "1", "exception.message": "bad"}, sdktrace.Status{Code: codes.Error, Description: "ValueError"}},
		"step that breaks": {func(tr tracer) { _, done := tr.step(t.Context(), 2, "1"); done(step(false, 5, raised), broken) }, "agent.step", trace.SpanKindInternal,
			map[string]any{"e2b.run.step": int64(2), "e2b.run.final": false, "e2b.code.execution_count": int64(5), "exception.type": "ValueError"},
			map[string]any{"e2b.code.text": "1", "exception.message": "bad"}, sdktrace.Status{Code: codes.Error, Description: "broken"}},
		"tool": {func(tr tracer) {
			_, done := tr.tool(t.Context(), agent.ToolCall{Run: "r", Step: 3, Tool: "ask", Arguments: arguments})
			done(nil)
		}, "agent.tool ask", trace.SpanKindInternal, map[string]any{"gen_ai.tool.name": "ask", "e2b.run.id": "r", "e2b.run.step": int64(3)},
			map[string]any{"gen_ai.tool.call.arguments": string(arguments.Bytes())}, sdktrace.Status{}},
		"tool that fails": {func(tr tracer) {
			_, done := tr.tool(t.Context(), agent.ToolCall{Run: "r", Step: 3, Tool: "ask", Arguments: arguments})
			done(broken)
		}, "agent.tool ask", trace.SpanKindInternal, map[string]any{"gen_ai.tool.name": "ask", "e2b.run.id": "r", "e2b.run.step": int64(3)},
			map[string]any{"gen_ai.tool.call.arguments": string(arguments.Bytes()), "exception.message": "broken"}, sdktrace.Status{Code: codes.Error, Description: "the tool failed"}},
	} {
		for _, content := range []bool{false, true} {
			tr, ended := recorded(t, content)
			tt.call(tr)
			span, want, got := ended(), map[string]any{}, map[string]any{}
			for key, value := range tt.want {
				want[key] = value
			}
			for key, value := range tt.content {
				if content {
					want[key] = value
				}
			}
			for _, a := range span.Attributes {
				got[string(a.Key)] = a.Value.AsInterface()
			}
			if span.InstrumentationScope.Name != scope {
				t.Errorf("%s: the span is of %s, want %s", name, span.InstrumentationScope.Name, scope)
			}
			if diff := cmp.Diff(want, got); diff != "" || span.Name != tt.span || span.SpanKind != tt.kind || span.Status != tt.status {
				t.Errorf("%s, content %v: got %s of kind %v with %+v, want %s, %v and %+v; attributes (-want +got):\n%s", name, content, span.Name, span.SpanKind, span.Status, tt.span, tt.kind, tt.status, diff)
			}
		}
	}
}

// TestTextsOfSpans checks where a long text is cut.
func TestTextsOfSpans(t *testing.T) {
	t.Parallel()
	x := func(n int) string { return strings.Repeat("x", n) }
	for text, want := range map[string]string{
		x(maxContent): x(maxContent), x(maxContent + 1): x(maxContent) + "…", x(maxContent-1) + "é": x(maxContent-1) + "…", x(maxContent-2) + "é": x(maxContent-2) + "é",
		x(maxContent-2) + "éx": x(maxContent-2) + "é…", strings.Repeat("\x80", maxContent+1): "…",
	} {
		tr, ended := recorded(t, true)
		_, span := tr.begin(t.Context(), "s", trace.SpanKindInternal)
		tr.text(span, keyCode, text)
		span.End()
		attributes := ended().Attributes
		if len(attributes) != 1 || attributes[0] != keyCode.String(want) {
			t.Errorf("%d bytes: got %d attributes, want one of %d bytes", len(text), len(attributes), len(want))
		}
	}
	if none := newTracer(nil, nil); none.content {
		t.Error("without parameters, texts are part of spans")
	}
	// A client without a tracer still has its functions.
	_, done := newTracer(nil, nil).connect(t.Context(), "i")
	done(nil, nil)
}

// TestContextOfSpans checks how the context of a span is passed on.
func TestContextOfSpans(t *testing.T) {
	t.Parallel()
	traceState, err := trace.ParseTraceState("a=b")
	must.Do(t, err)
	config := trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled}
	plain := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(config))
	config.TraceState = traceState
	stated := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(config))
	const parent = "00-01000000000000000000000000000000-0200000000000000-01"
	for name, tt := range map[string]struct {
		ctx    context.Context //nolint:containedctx // of the case
		own    string
		header http.Header
		envs   map[string]string
	}{
		"no span":      {t.Context(), "", http.Header{}, map[string]string{}},
		"a span":       {plain, "", http.Header{"Traceparent": {parent}}, map[string]string{"TRACEPARENT": parent}},
		"with a state": {stated, "", http.Header{"Traceparent": {parent}, "Tracestate": {"a=b"}}, map[string]string{"TRACEPARENT": parent, "TRACESTATE": "a=b"}},
		"its own":      {stated, "mine", http.Header{"Traceparent": {"mine"}}, map[string]string{"TRACEPARENT": parent, "TRACESTATE": "a=b"}},
	} {
		h := http.Header{}
		if tt.own != "" {
			h.Set("Traceparent", tt.own)
		}
		headers(tt.ctx, h)
		if diff := cmp.Diff(tt.header, h) + cmp.Diff(tt.envs, envs(tt.ctx)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestDurations checks the name, the description, the attributes and the value of the metric of each call.
func TestDurations(t *testing.T) {
	t.Parallel()
	box := newBox(t)
	synctest.Test(t, func(t *testing.T) {
		reader := sdkmetric.NewManualReader()
		tr := newTracer(nil, &Params{Meters: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
		broken := errors.New("broken")
		canceled, cancel := context.WithCancel(t.Context())
		_, create := tr.create(canceled, "base")
		_, connect := tr.connect(t.Context(), "i")
		_, command := tr.command(t.Context(), box, "ls")
		_, code := tr.code(t.Context(), box, "1")
		cancel() // its call is counted all the same
		<-time.After(time.Second)
		create(nil, broken)
		<-time.After(time.Second)
		connect(nil, nil)
		<-time.After(time.Second)
		command(nil, nil)
		<-time.After(time.Second)
		code(nil, nil)
		var data metricdata.ResourceMetrics
		must.Do(t, reader.Collect(t.Context(), &data))
		got := map[string]string{}
		for _, m := range data.ScopeMetrics[0].Metrics {
			for _, p := range m.Data.(metricdata.Histogram[float64]).DataPoints {
				kind, _ := p.Attributes.Value(attribute.Key("error.type"))
				got[m.Name] = fmt.Sprintf("%s %d %v%s %s", m.Description, p.Count, p.Sum, m.Unit, kind.AsString())
			}
		}
		want := map[string]string{
			"e2b.create.duration": "Time to create a sandbox. 1 1s _OTHER", "e2b.connect.duration": "Time to connect to a sandbox. 1 2s ",
			"e2b.command.duration": "Time to run a command. 1 3s ", "e2b.code.duration": "Time to run code. 1 4s ",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
