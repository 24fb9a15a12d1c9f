package tracing

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/pipetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start begins to report a command to a collector at url.
func start(t *testing.T, url string) (context.Context, *Tracing) {
	t.Helper()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
	return started(t)
}

// started begins to report a command to the collector that the environment names.
func started(t *testing.T) (context.Context, *Tracing) {
	t.Helper()
	ctx, traced, err := Start(t.Context(), "e2bctl test", slog.New(slog.NewTextHandler(t.Output(), nil)))
	must.Do(t, err)
	return ctx, traced
}

func TestSpansOfACommand(t *testing.T) {
	var bodies [][]byte
	var paths []string
	var header http.Header
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		bodies, paths, header = append(bodies, body), append(paths, r.URL.Path), r.Header
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20abc, X-Team = mine,broken")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=nightly,deployment=test")
	t.Setenv("TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	ctx, traced := start(t, collector.URL+"/")
	_, inner := traced.provider.Tracer("inner").Start(ctx, "inner", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.Bool("bool", true), attribute.Int64("int", 1<<60), attribute.Float64("float", 1.5), attribute.String("empty", ""), attribute.StringSlice("list", []string{"a", "b"})))
	inner.SetStatus(codes.Error, "it broke")
	inner.End()
	traced.End(3)

	if len(bodies) != 1 || paths[0] != "/v1/traces" {
		t.Fatalf("got %d requests to %q, want one to /v1/traces", len(bodies), paths)
	}
	if header.Get("Authorization") != "Bearer abc" || header.Get("X-Team") != "mine" || header.Get("Content-Type") != "application/json" {
		t.Errorf("got the headers %v", header)
	}
	var sent tracesData
	decoder := json.NewDecoder(strings.NewReader(string(bodies[0])))
	decoder.DisallowUnknownFields()
	must.Do(t, decoder.Decode(&sent))
	spans := map[string]span{}
	for _, scope := range sent.ResourceSpans[0].ScopeSpans {
		for _, one := range scope.Spans {
			spans[one.Name] = one
		}
	}
	root, in := spans["e2bctl test"], spans["inner"]
	if root.ParentSpanID != "b7ad6b7169203331" || root.TraceID != "0af7651916cd43dd8448eb211c80319c" || in.ParentSpanID != root.SpanID || in.TraceID != root.TraceID {
		t.Errorf("got %+v in %+v, want one in the other, and that in the span of TRACEPARENT", in, root)
	}
	if root.Kind != 1 || in.Kind != 3 || root.Status.Code != 2 || in.Status != (status{2, "it broke"}) {
		t.Errorf("got kinds %d and %d, status %+v and %+v, want 1 and 3, and errors", root.Kind, in.Kind, root.Status, in.Status)
	}
	if diff := cmp.Diff([]keyValue{{"process.exit.code", value{Int: "3"}}}, root.Attributes); diff != "" {
		t.Errorf("the attributes of the command (-want +got):\n%s", diff)
	}
	got, err := json.Marshal(in.Attributes)
	must.Do(t, err)
	want := `[{"key":"bool","value":{"boolValue":true}},{"key":"int","value":{"intValue":"1152921504606846976"}},` +
		`{"key":"float","value":{"doubleValue":1.5}},{"key":"empty","value":{"stringValue":""}},{"key":"list","value":{"stringValue":"[\"a\",\"b\"]"}}]`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
	about, err := json.Marshal(sent.ResourceSpans[0].Resource)
	if err != nil || !strings.Contains(string(about), `{"key":"service.name","value":{"stringValue":"nightly"}}`) {
		t.Errorf("got the resource %s, %v, want that of the environment", about, err)
	}
}

// A collector that is slow, down or refuses spans delays nothing.
func TestBadCollectors(t *testing.T) {
	dial := func(answer http.HandlerFunc) func(*testing.T) dialer {
		return func(t *testing.T) dialer { return pipetest.Serve(t, answer).DialContext }
	}
	for name, collector := range map[string]func(*testing.T) dialer{
		"slow": dial(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}),
		"silent": func(t *testing.T) dialer { // nothing reads from the connection
			return func(context.Context, string, string) (net.Conn, error) { ours, _ := net.Pipe(); return ours, nil }
		},
		"down": func(t *testing.T) dialer {
			return func(context.Context, string, string) (net.Conn, error) { return nil, syscall.ECONNREFUSED }
		},
		"refusing": dial(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no room", http.StatusServiceUnavailable) }),
		"elsewhere": dial(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://elsewhere.invalid", http.StatusTemporaryRedirect)
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector.invalid")
			synctest.Test(t, func(t *testing.T) {
				ctx, traced := started(t)
				traced.exporter.transport.DialContext = collector(t)
				begun := time.Now()
				for range 10_000 { // more than the exporter keeps
					_, one := traced.provider.Tracer("many").Start(ctx, "one")
					one.End()
				}
				if took := time.Since(begun); took != 0 {
					t.Errorf("10000 spans took %v, want no wait for the collector", took)
				}
				traced.End(0)
				if took := time.Since(begun); took > time.Second {
					t.Errorf("the end took %v, want a second at most", took)
				}
			})
		})
	}
}

type dialer = func(context.Context, string, string) (net.Conn, error)

// TestEndpoint checks which of the variables names the collector of spans.
func TestEndpoint(t *testing.T) {
	const general, traces = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	for _, tt := range []struct{ general, traces, want string }{
		{"", "", ""},
		{"http://a.invalid", "", "http://a.invalid/v1/traces"},
		{"http://a.invalid/otlp/", "", "http://a.invalid/otlp/v1/traces"},
		{"", "http://b.invalid/spans", "http://b.invalid/spans"},
		{"http://a.invalid", "http://b.invalid/", "http://b.invalid/"},
	} {
		t.Setenv(general, tt.general)
		t.Setenv(traces, tt.traces)
		if got := endpoint(); got != tt.want {
			t.Errorf("with %s=%q and %s=%q: got %q, want %q", general, tt.general, traces, tt.traces, got, tt.want)
		}
	}
}

// TestDamagedResource checks that the log names a list of attributes with a mistake, and that the command is traced.
func TestDamagedResource(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector.invalid")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "broken")
	var log strings.Builder
	_, traced, err := Start(t.Context(), "e2bctl test", slog.New(slog.NewTextHandler(&log, nil)))
	must.Do(t, err)
	traced.exporter.transport.DialContext = func(context.Context, string, string) (net.Conn, error) { return nil, syscall.ECONNREFUSED }
	traced.End(0)
	for _, want := range []string{"part of OTEL_RESOURCE_ATTRIBUTES is not used", "broken", "spans=1"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("got the log %q, want %q in it", &log, want)
		}
	}
}

func TestNotTraced(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"nothing":  {},
		"disabled": {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
		"none":     {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
		"no URL":   {"OTEL_EXPORTER_OTLP_ENDPOINT": "localhost:4317"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, variable := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER"} {
				t.Setenv(variable, env[variable])
			}
			ctx, traced, err := Start(t.Context(), "e2bctl test", slog.New(slog.DiscardHandler))
			if traced != nil || ctx != t.Context() || (err != nil) != (name == "no URL") {
				t.Errorf("got %v, %v, want nothing to be traced", traced, err)
			}
			if options := traced.Options(); options != nil {
				t.Errorf("got %d options, want none", len(options))
			}
			traced.End(0)
		})
	}
}

// TestAddressesAndHeaders checks the addresses that the exporter accepts, and the headers that it
// takes from a list with mistakes.
func TestAddressesAndHeaders(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"http://a.invalid": true, "https://a.invalid": true,
		"http://": false, "http:///v1": false, "ftp://a.invalid": false, "a.invalid:4318": false, "http://a b": false, "": false,
	} {
		e, err := newExporter(address, "a=1, b = x%20y ,none,bad=%zz", nil)
		if got := err == nil; got != want {
			t.Errorf("%q is accepted: %v, %v; want %v", address, got, err, want)
		}
		if e == nil {
			continue
		}
		e.cancel()
		headers := http.Header{"Content-Type": {"application/json"}, "A": {"1"}, "B": {"x y"}}
		if diff := cmp.Diff(headers, e.header); diff != "" {
			t.Errorf("%q: headers (-want +got):\n%s", address, diff)
		}
	}
}
