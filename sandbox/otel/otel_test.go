package otel_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/internal/clienttest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/sandbox/otel"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wire records the trace headers of requests, by "METHOD path".
type wire struct {
	http.RoundTripper

	mu   sync.Mutex
	sent map[string]string
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.sent[r.Method+" "+r.URL.Path] = r.Header.Get("Traceparent")
	w.mu.Unlock()
	return w.RoundTripper.RoundTrip(r)
}

func (w *wire) header(request string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent[request]
}

// traced is a sandbox whose calls are recorded, within a span of the test's own.
type traced struct {
	*sandbox.Sandbox
	ctx      context.Context //nolint:containedctx // of the calls within root
	exporter *tracetest.InMemoryExporter
	provider *sdktrace.TracerProvider
	root     trace.Span
	wire     *wire
}

func newTraced(t *testing.T, params *otel.Params) *traced {
	t.Helper()
	cloud := sandboxtest.New(t)
	x := &traced{exporter: tracetest.NewInMemoryExporter()}
	x.provider = sdktrace.NewTracerProvider(sdktrace.WithSyncer(x.exporter))
	x.wire = &wire{RoundTripper: clienttest.New(t).Transport, sent: map[string]string{}}
	client, err := sandbox.NewClient(cloud.Option(), sandbox.WithTransport(x.wire), otel.WithTracing(x.provider, params))
	must.Do(t, err)
	t.Cleanup(func() { _ = client.Close() })
	x.ctx, x.root = x.provider.Tracer("test").Start(t.Context(), "root")
	x.Sandbox, err = client.Create(x.ctx)
	must.Do(t, err)
	t.Cleanup(func() { _ = x.Close() })
	return x
}

// span returns the only span of a name, and removes all.
func (x *traced) span(t *testing.T, name string) tracetest.SpanStub {
	t.Helper()
	defer x.exporter.Reset()
	var found []tracetest.SpanStub
	for _, span := range x.exporter.GetSpans() {
		if span.Name == name {
			found = append(found, span)
		}
	}
	if len(found) != 1 {
		t.Fatalf("got %d spans %q of %v, want one", len(found), name, x.exporter.GetSpans())
	}
	return found[0]
}

// header is the traceparent of a span.
func header(span trace.SpanContext) string {
	return "00-" + span.TraceID().String() + "-" + span.SpanID().String() + "-01"
}

func attributes(span tracetest.SpanStub) map[string]string {
	all := map[string]string{}
	for _, a := range span.Attributes {
		all[string(a.Key)] = a.Value.String()
	}
	return all
}

// check compares a span that was started within parent.
func check(t *testing.T, span tracetest.SpanStub, parent trace.SpanContext, status sdktrace.Status, want map[string]string) {
	t.Helper()
	if span.Parent.SpanID() != parent.SpanID() || span.SpanContext.TraceID() != parent.TraceID() {
		t.Errorf("%s: got parent %v, want %v", span.Name, span.Parent.SpanID(), parent.SpanID())
	}
	if span.Status != status {
		t.Errorf("%s: got %+v, want %+v", span.Name, span.Status, status)
	}
	if diff := cmp.Diff(want, attributes(span)); diff != "" {
		t.Errorf("%s: (-want +got):\n%s", span.Name, diff)
	}
}

func failed(why string) sdktrace.Status { return sdktrace.Status{Code: codes.Error, Description: why} }

func TestSpansOfCalls(t *testing.T) {
	t.Parallel()
	x := newTraced(t, nil)
	root, id := x.root.SpanContext(), x.ID()

	span := x.span(t, "sandbox.create")
	check(t, span, root, sdktrace.Status{}, map[string]string{"e2b.template": sandbox.DefaultTemplate, "e2b.sandbox.id": id})
	if got := x.wire.header("POST /v2/sandboxes"); got != header(span.SpanContext) {
		t.Errorf("create was sent with %q, want %q", got, header(span.SpanContext))
	}

	result, err := x.Commands.Run(x.ctx, "echo $TRACEPARENT", nil)
	must.Do(t, err)
	span = x.span(t, "sandbox.command")
	check(t, span, root, sdktrace.Status{}, map[string]string{"e2b.sandbox.id": id, "process.exit.code": "0"})
	if got, sent := strings.TrimSpace(result.Stdout), x.wire.header("POST /process.Process/Start"); got != header(span.SpanContext) || got != sent {
		t.Errorf("the command has %q and was sent with %q, want %q", got, sent, header(span.SpanContext))
	}

	command, err := x.Commands.Start(x.ctx, "echo a secret >&2; exit 3", nil)
	must.Do(t, err)
	if _, err = command.Wait(x.ctx); err == nil {
		t.Error("the command succeeded, want status 3")
	}
	check(t, x.span(t, "sandbox.command"), root, failed("the command ended with another status than 0"),
		map[string]string{"e2b.sandbox.id": id, "process.exit.code": "3"})

	if _, err := x.Commands.Start(x.ctx, "true", &sandbox.CommandParams{Cwd: "/missing"}); err == nil {
		t.Error("the command started, want no such directory")
	}
	if span := x.span(t, "sandbox.command"); span.Status.Code != codes.Error {
		t.Errorf("a command that did not start: got %+v, want an error", span.Status)
	}

	execution, err := x.RunCode(x.ctx, "import os; os.environ['TRACEPARENT']", nil)
	must.Do(t, err)
	span = x.span(t, "sandbox.code")
	check(t, span, root, sdktrace.Status{}, map[string]string{"e2b.sandbox.id": id, "e2b.code.execution_count": "1"})
	if got := strings.Trim(execution.Text(), "'"); got != header(span.SpanContext) {
		t.Errorf("the code has %q, want %q", got, header(span.SpanContext))
	}
	if _, err := x.RunCode(x.ctx, "raise ValueError('a secret')", nil); err == nil {
		t.Error("the code succeeded, want an exception")
	}
	check(t, x.span(t, "sandbox.code"), root, failed("ValueError"),
		map[string]string{"e2b.sandbox.id": id, "e2b.code.execution_count": "2", "exception.type": "ValueError"})

	// Without a span there is nothing to pass on, and the caller's own wins.
	result, err = x.Commands.Run(x.ctx, "echo $TRACEPARENT", &sandbox.CommandParams{Envs: map[string]string{"TRACEPARENT": "mine"}})
	if err != nil || result.Stdout != "mine\n" {
		t.Errorf("got %+v, %v, want the caller's variable", result, err)
	}
}

func TestSpansWithContent(t *testing.T) {
	t.Parallel()
	x := newTraced(t, &otel.Params{Content: true})
	if _, err := x.Commands.Run(x.ctx, "true "+strings.Repeat("é", 4<<10), nil); err != nil {
		t.Fatal(err)
	}
	if got := attributes(x.span(t, "sandbox.command"))["process.command_line"]; !strings.HasPrefix(got, "true éé") || !strings.HasSuffix(got, "é…") || len(got) > 4100 {
		t.Errorf("got %d bytes that begin with %.20q, want the beginning of the command", len(got), got)
	}
	if _, err := x.RunCode(x.ctx, "1/0", nil); err == nil {
		t.Error("the code succeeded, want an exception")
	}
	got := attributes(x.span(t, "sandbox.code"))
	if got["e2b.code.text"] != "1/0" || got["exception.message"] != "division by zero" {
		t.Errorf("got %v, want the code and its exception", got)
	}
}

func TestSpansOfRuns(t *testing.T) {
	t.Parallel()
	x := newTraced(t, nil)
	tool := agent.MustTool("ask", "Asks.", func(ctx context.Context, in struct {
		Word string `py:"word"`
	}) (string, error) {
		_, span := x.provider.Tracer("test").Start(ctx, "inner")
		defer span.End()
		if in.Word == "bad" {
			return "", errors.New("a secret")
		}
		return in.Word, nil
	})
	run, err := agent.Begin(x.ctx, x.Sandbox, &agent.Params{Tools: []agent.Tool{tool}, Trace: otel.AgentTrace(x.provider, nil)})
	must.Do(t, err)
	defer run.Close()
	x.exporter.Reset()
	if _, err := run.Exec(x.ctx, "ask('good')"); err != nil {
		t.Fatal(err)
	}
	spans := map[string]tracetest.SpanStub{}
	for _, span := range x.exporter.GetSpans() {
		spans[span.Name] = span
	}
	x.exporter.Reset()
	step, call := spans["agent.step"], spans["agent.tool ask"]
	check(t, step, x.root.SpanContext(), sdktrace.Status{}, map[string]string{"e2b.run.step": "1", "e2b.run.final": "false", "e2b.code.execution_count": attributes(step)["e2b.code.execution_count"]})
	check(t, call, step.SpanContext, sdktrace.Status{}, map[string]string{"gen_ai.tool.name": "ask", "e2b.run.id": run.ID(), "e2b.run.step": "1"})
	check(t, spans["inner"], call.SpanContext, sdktrace.Status{}, map[string]string{})

	if _, err := run.Exec(x.ctx, "ask('bad')"); err != nil {
		t.Fatal(err)
	}
	for _, span := range x.exporter.GetSpans() {
		for key, value := range attributes(span) {
			if strings.Contains(value+span.Status.Description, "secret") {
				t.Errorf("%s has %s=%s and %q, want no text of the tool", span.Name, key, value, span.Status.Description)
			}
		}
	}
	if span := x.span(t, "agent.tool ask"); span.Status != failed("the tool failed") {
		t.Errorf("got %+v, want that the tool failed", span.Status)
	}
}

// Without a span a request has no header, and code and commands get no trace.
func TestNoSpan(t *testing.T) {
	t.Parallel()
	x := newTraced(t, nil)
	_, err := x.Info(t.Context())
	must.Do(t, err)
	if got := x.wire.header("GET /sandboxes/" + x.ID()); got != "" {
		t.Errorf("the request has %q, want no header", got)
	}
	must.Do(t, x.Files.WriteText(x.ctx, "file", "text", nil))
	if got := x.wire.header("POST /files"); got != header(x.root.SpanContext()) {
		t.Errorf("the request has %q, want %q", got, header(x.root.SpanContext()))
	}
}
