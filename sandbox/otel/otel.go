package otel

import (
	"context"
	"errors"
	"net/http"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
)

// Params configures the content of spans, and metrics. The zero value excludes everything that may be secret.
type Params struct {
	// Content adds the text of commands, code and arguments of tools, and the messages of
	// exceptions and of tools' errors. Each is limited to 4 KiB.
	Content bool
	// Meters receives the durations of the calls in seconds: the histograms e2b.create.duration,
	// e2b.connect.duration, e2b.command.duration and e2b.code.duration. For a call that failed, the
	// attribute error.type is exception, exit, gone, canceled, timeout or _OTHER. Nil means no metrics.
	Meters metric.MeterProvider
}

// WithTracing returns a client option that reports the client's calls as spans of p, and their durations
// to params.Meters. A nil p means no spans. The option is a [sandbox.WithTrace], so a client can have
// only one WithTracing or WithTrace.
func WithTracing(p trace.TracerProvider, params *Params) sandbox.ClientOption {
	t := newTracer(p, params)
	return sandbox.WithTrace(sandbox.Trace{
		Create:  t.create,
		Connect: t.connect,
		Command: t.command,
		Code:    t.code,
		Headers: headers,
		Envs:    envs,
	})
}

// AgentTrace returns hooks that report the steps and tool calls of a run as spans of p. Spans that
// a tool starts with the context of its call are children of the span of the tool call.
func AgentTrace(p trace.TracerProvider, params *Params) *agent.Trace {
	t := newTracer(p, params)
	return &agent.Trace{Step: t.step, Tool: t.tool}
}

// scope is the name of this package as the source of the spans.
const scope = "github.com/e2bctl/e2bctl/sandbox/otel"

// These are the attributes of spans.
const (
	keySandbox  = attribute.Key("e2b.sandbox.id")
	keyTemplate = attribute.Key("e2b.template")
	keyRun      = attribute.Key("e2b.run.id")
	keyStep     = attribute.Key("e2b.run.step")
	keyFinal    = attribute.Key("e2b.run.final")
	keyCode     = attribute.Key("e2b.code.text")
	keyCount    = attribute.Key("e2b.code.execution_count")
	keyTool     = attribute.Key("gen_ai.tool.name")
	keyArgs     = attribute.Key("gen_ai.tool.call.arguments")
	keyCommand  = attribute.Key("process.command_line")
	keyPID      = attribute.Key("process.pid")
	keyExit     = attribute.Key("process.exit.code")
	keyType     = attribute.Key("exception.type")
	keyMessage  = attribute.Key("exception.message")
)

// maxContent limits the bytes of a text in a span.
const maxContent = 4 << 10

type tracer struct {
	trace.Tracer
	content bool
	times   durations
}

func newTracer(p trace.TracerProvider, params *Params) tracer {
	if params == nil {
		params = &Params{}
	}
	if p == nil {
		p = noop.NewTracerProvider()
	}
	return tracer{p.Tracer(scope), params.Content, newDurations(params.Meters)}
}

// begin starts a span. The caller must end it.
func (t tracer) begin(ctx context.Context, name string, kind trace.SpanKind, attributes ...attribute.KeyValue) (context.Context, trace.Span) {
	return t.Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(attributes...))
}

// text adds a text that may be secret, if Params.Content is set.
func (t tracer) text(span trace.Span, key attribute.Key, text string) {
	if !t.content || !span.IsRecording() {
		return
	}
	if len(text) > maxContent {
		end := maxContent
		for end > 0 && !utf8.RuneStart(text[end]) {
			end--
		}
		text = text[:end] + "…"
	}
	span.SetAttributes(key.String(text))
}

func (t tracer) create(ctx context.Context, template string) (context.Context, func(*sandbox.Sandbox, error)) {
	done := timed(ctx, t.times.create)
	ctx, span := t.begin(ctx, "sandbox.create", trace.SpanKindClient, keyTemplate.String(template))
	return ctx, func(sb *sandbox.Sandbox, err error) {
		if sb != nil {
			span.SetAttributes(keySandbox.String(sb.ID()))
		}
		done(err)
		end(span, err)
	}
}

func (t tracer) connect(ctx context.Context, id string) (context.Context, func(*sandbox.Sandbox, error)) {
	done := timed(ctx, t.times.connect)
	ctx, span := t.begin(ctx, "sandbox.connect", trace.SpanKindClient, keySandbox.String(id))
	return ctx, func(_ *sandbox.Sandbox, err error) {
		done(err)
		end(span, err)
	}
}

func (t tracer) command(ctx context.Context, sb *sandbox.Sandbox, command string) (context.Context, func(*sandbox.CommandResult, error)) {
	done := timed(ctx, t.times.command)
	ctx, span := t.begin(ctx, "sandbox.command", trace.SpanKindClient, keySandbox.String(sb.ID()))
	t.text(span, keyCommand, command)
	return ctx, func(result *sandbox.CommandResult, err error) {
		if exit, ok := errors.AsType[*sandbox.ExitError](err); ok || err == nil && result != nil {
			if ok {
				result = exit.Result
			}
			span.SetAttributes(keyExit.Int(result.ExitCode))
		}
		done(err)
		end(span, err)
	}
}

func (t tracer) code(ctx context.Context, sb *sandbox.Sandbox, code string) (context.Context, func(*sandbox.Execution, error)) {
	done := timed(ctx, t.times.code)
	ctx, span := t.begin(ctx, "sandbox.code", trace.SpanKindClient, keySandbox.String(sb.ID()))
	t.text(span, keyCode, code)
	return ctx, func(execution *sandbox.Execution, err error) {
		if execution != nil {
			t.execution(span, execution)
		}
		done(err)
		end(span, err)
	}
}

// execution adds the result of code.
func (t tracer) execution(span trace.Span, e *sandbox.Execution) {
	if e.Count > 0 {
		span.SetAttributes(keyCount.Int(e.Count))
	}
	if e.Error == nil {
		return
	}
	span.SetAttributes(keyType.String(e.Error.Name))
	t.text(span, keyMessage, e.Error.Value)
}

func (t tracer) step(ctx context.Context, n int, code string) (context.Context, func(*agent.Step, error)) {
	ctx, span := t.begin(ctx, "agent.step", trace.SpanKindInternal, keyStep.Int(n))
	t.text(span, keyCode, code)
	return ctx, func(step *agent.Step, err error) {
		t.execution(span, &step.Execution)
		span.SetAttributes(keyFinal.Bool(step.Final))
		if err == nil && step.Error != nil { // for the model the exception is an observation
			err = step.Error
		}
		end(span, err)
	}
}

func (t tracer) tool(ctx context.Context, call agent.ToolCall) (context.Context, func(error)) {
	ctx, span := t.begin(ctx, "agent.tool "+call.Tool, trace.SpanKindInternal,
		keyTool.String(call.Tool), keyRun.String(call.Run), keyStep.Int(call.Step))
	t.text(span, keyArgs, string(call.Arguments.Bytes()))
	return ctx, func(err error) {
		if err != nil {
			t.text(span, keyMessage, err.Error())
			span.SetStatus(codes.Error, "the tool failed")
		}
		span.End()
	}
}

// end ends a span with the error of its call. It excludes the error messages of code and commands,
// because these may be secret.
func end(span trace.Span, err error) {
	var description string
	raised, isRaised := errors.AsType[*sandbox.ExecutionError](err)
	_, isExit := errors.AsType[*sandbox.ExitError](err)
	switch {
	case err == nil:
		span.End()
		return
	case isRaised:
		description = raised.Name
	case isExit:
		description = "the command ended with another status than 0"
	default:
		description = err.Error()
	}
	span.SetStatus(codes.Error, description)
	span.End()
}

var w3c propagation.TraceContext

// headers adds the context of the span to h if h has no traceparent header.
func headers(ctx context.Context, h http.Header) {
	if h.Get("Traceparent") == "" {
		w3c.Inject(ctx, propagation.HeaderCarrier(h))
	}
}

// envs returns the context of the span as environment variables.
func envs(ctx context.Context) map[string]string {
	carried := propagation.MapCarrier{}
	w3c.Inject(ctx, carried)
	all := map[string]string{}
	for name, variable := range map[string]string{"traceparent": "TRACEPARENT", "tracestate": "TRACESTATE"} {
		if value := carried[name]; value != "" {
			all[variable] = value
		}
	}
	return all
}
