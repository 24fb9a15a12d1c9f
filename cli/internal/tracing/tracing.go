// Package tracing sends the spans of a command to a collector of OpenTelemetry if the
// environment names one. Otherwise it sets up nothing.
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

// endGrace limits the wait of a command at its end for a collector that is slow or
// unreachable.
const endGrace = time.Second

// Tracing reports one command. A nil one reports nothing.
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

// Start begins the span of a command, within the one that TRACEPARENT names, if the
// environment names a collector. Otherwise the Tracing is nil. The returned context has
// the span.
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

// End ends the span of the command, which exits with a status, and sends the remaining
// spans. It takes a second at most, regardless of the collector.
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
