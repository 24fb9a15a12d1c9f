// Package tracing sends the spans of a command to a collector of OpenTelemetry if the environment
// names one. Otherwise it does nothing.
package tracing

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/otel"
)

// endGrace limits how long a command waits at its end for a slow or unreachable collector.
const endGrace = time.Second

// Tracing reports one command. A nil *Tracing reports nothing.
type Tracing struct {
	provider *sdktrace.TracerProvider
	exporter *exporter
	root     trace.Span
}

// endpoint returns the URL for spans; empty means that there is no collector.
func endpoint() string {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return ""
	}
	if url := os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"); url != "" {
		return url
	}
	if url := os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"); url != "" {
		return strings.TrimSuffix(url, "/") + "/v1/traces"
	}
	return ""
}

// Start begins the span of a command if the environment names a collector. The parent of that span
// is the span in TRACEPARENT, if there is one. The returned context contains the new span. Without
// a collector the Tracing is nil.
func Start(ctx context.Context, command string, logger *slog.Logger) (context.Context, *Tracing, error) {
	url := endpoint()
	if url == "" {
		return ctx, nil, nil
	}
	e, err := newExporter(url, cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS"), os.Getenv("OTEL_EXPORTER_OTLP_HEADERS")), logger)
	if err != nil {
		return ctx, nil, fmt.Errorf("the command is not traced: %w", err)
	}
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "e2bctl")), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		logger.WarnContext(ctx, "part of OTEL_RESOURCE_ATTRIBUTES is not used", "error", err)
	}
	t := &Tracing{provider: sdktrace.NewTracerProvider(sdktrace.WithBatcher(e), sdktrace.WithResource(about)), exporter: e}
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{
		"traceparent": os.Getenv("TRACEPARENT"), "tracestate": os.Getenv("TRACESTATE"),
	})
	ctx, t.root = t.provider.Tracer("github.com/e2bctl/e2bctl/cli").Start(ctx, command)
	return ctx, t, nil
}

// Options returns the options with which clients report their calls.
func (t *Tracing) Options() []sandbox.ClientOption {
	if t == nil {
		return nil
	}
	return []sandbox.ClientOption{otel.WithTracing(t.provider, nil)}
}

// End ends the span of the command, which exits with the given status. It then sends the remaining
// spans. It takes at most a second, even if the collector does not answer.
func (t *Tracing) End(status int) {
	if t == nil {
		return
	}
	t.root.SetAttributes(attribute.Int("process.exit.code", status))
	if status != 0 {
		t.root.SetStatus(codes.Error, fmt.Sprintf("exit status %d", status))
	}
	t.root.End()
	ctx, cancel := context.WithTimeout(context.Background(), endGrace)
	defer cancel()
	t.exporter.stop(t.provider.Shutdown(ctx))
}
