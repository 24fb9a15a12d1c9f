package tracing

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// exportTimeout bounds one attempt to send spans.
const exportTimeout = 10 * time.Second

// exporter sends spans with OTLP over HTTP, as JSON. It replaces OpenTelemetry's own exporter,
// which imports all of gRPC. gRPC would add 3 MB to the program, and 1100 allocations before main,
// even in every process of a local sandbox.
type exporter struct {
	url, name string // the URL, and the form of the URL without a password, for messages
	header    http.Header
	transport *http.Transport
	client    *http.Client
	logger    *slog.Logger
	life      context.Context //nolint:containedctx // the context of requests for which End does not wait
	cancel    context.CancelFunc
}

func newExporter(address, headers string, logger *slog.Logger) (*exporter, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("the collector's address in OTEL_EXPORTER_OTLP_ENDPOINT is not an HTTP address: want one such as http://localhost:4318")
	}
	e := &exporter{url: address, name: u.Redacted(), header: http.Header{"Content-Type": {"application/json"}}, logger: logger}
	for pair := range strings.SplitSeq(headers, ",") {
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if ok && err == nil {
			e.header.Set(strings.TrimSpace(name), value)
		}
	}
	e.transport = http.DefaultTransport.(*http.Transport).Clone()
	e.client = &http.Client{
		Transport: e.transport,
		// A redirect would carry the headers to another host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	e.life, e.cancel = context.WithCancel(context.Background())
	return e, nil
}

// stop makes the exporter send no more spans. err is the error of the attempt to send the remaining
// spans, or nil if that succeeded.
func (e *exporter) stop(err error) {
	if err != nil {
		e.logger.WarnContext(e.life, "spans were not sent in time", "collector", e.name, "error", err)
	}
	e.cancel()
	e.transport.CloseIdleConnections()
}

// ExportSpans tries once to send spans. If the collector does not accept them, they are lost. Only
// the log of -v reports the loss: the command does not fail, and prints no message about it.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := e.send(ctx, spans); err != nil && e.life.Err() == nil { // otherwise End reports it
		e.logger.WarnContext(ctx, "spans were not sent", "spans", len(spans), "collector", e.name, "error", err)
	}
	return nil
}

func (e *exporter) send(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if e.life.Err() != nil {
		return errors.New("the command has ended")
	}
	body, err := json.Marshal(document(spans))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, exportTimeout)
	defer cancel()
	defer context.AfterFunc(e.life, cancel)()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header = e.header.Clone()
	response, err := e.client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if response.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("%s: %.256q", response.Status, text)
	}
	return nil
}

// Shutdown does nothing: [Tracing.End] stops the exporter.
func (e *exporter) Shutdown(context.Context) error { return nil }
