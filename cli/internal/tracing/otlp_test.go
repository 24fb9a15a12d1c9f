package tracing

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestDocument checks every field of the spans of two scopes, with each status, in the form of OTLP.
func TestDocument(t *testing.T) {
	t.Parallel()
	state, err := trace.ParseTraceState("vendor=1")
	must.Do(t, err)
	own := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: state})
	scoped := func(name, scope string, s sdktrace.Status) tracetest.SpanStub {
		return tracetest.SpanStub{
			Name: name, SpanContext: own, SpanKind: trace.SpanKindServer, Status: s,
			StartTime: time.Unix(1, 2), EndTime: time.Unix(3, 4), Attributes: []attribute.KeyValue{attribute.Int("n", 5)},
			Resource:             resource.NewSchemaless(attribute.String("service.name", "nightly")),
			InstrumentationScope: instrumentation.Scope{Name: scope},
		}
	}
	inner := scoped("inner", "a", sdktrace.Status{Code: codes.Error, Description: "it broke"})
	inner.Parent = own.WithSpanID(trace.SpanID{3})
	got := document(tracetest.SpanStubs{scoped("unset", "a", sdktrace.Status{}), scoped("ok", "b", sdktrace.Status{Code: codes.Ok}), inner}.Snapshots())

	sent := func(name, parent string, s status) span {
		return span{
			TraceID: "01000000000000000000000000000000", SpanID: "0200000000000000", ParentSpanID: parent, TraceState: "vendor=1", Flags: 1,
			Name: name, Kind: 2, Start: "1000000002", End: "3000000004", Attributes: []keyValue{{"n", value{Int: "5"}}}, Status: s,
		}
	}
	want := tracesData{[]resourceSpans{{
		Resource: attributed{[]keyValue{{"service.name", value{String: new("nightly")}}}},
		ScopeSpans: []scopeSpans{
			{scope{"a"}, []span{sent("unset", "", status{}), sent("inner", "0300000000000000", status{2, "it broke"})}},
			{scope{"b"}, []span{sent("ok", "", status{Code: 1})}},
		},
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the document (-want +got):\n%s", diff)
	}
}

// TestDoubles checks the JSON of numbers, also of those that JSON has no form for.
func TestDoubles(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]float64{"0": 0, "1.5": 1.5, `"NaN"`: math.NaN(), `"Infinity"`: math.Inf(1), `"-Infinity"`: math.Inf(-1)} {
		got, err := json.Marshal(keyValues([]attribute.KeyValue{attribute.Float64("a", f)}))
		if want := `[{"key":"a","value":{"doubleValue":` + want + `}}]`; err != nil || string(got) != want {
			t.Errorf("%v: got %s and error %v, want %s", f, got, err, want)
		}
	}
}
