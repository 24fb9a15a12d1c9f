package tracing

import (
	"encoding/json"
	"math"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// The types of OTLP that are needed for the spans of a command. In OTLP's JSON, ids are hexadecimal
// and 64-bit numbers are strings.
type (
	tracesData struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource   attributed   `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	attributed struct {
		Attributes []keyValue `json:"attributes,omitempty"`
	}
	scopeSpans struct {
		Scope scope  `json:"scope"`
		Spans []span `json:"spans"`
	}
	scope struct {
		Name string `json:"name"`
	}
	span struct {
		TraceID      string     `json:"traceId"`
		SpanID       string     `json:"spanId"`
		ParentSpanID string     `json:"parentSpanId,omitempty"`
		TraceState   string     `json:"traceState,omitempty"`
		Flags        uint32     `json:"flags"`
		Name         string     `json:"name"`
		Kind         int        `json:"kind"`
		Start        string     `json:"startTimeUnixNano"`
		End          string     `json:"endTimeUnixNano"`
		Attributes   []keyValue `json:"attributes,omitempty"`
		Status       status     `json:"status"`
	}
	status struct {
		Code    int    `json:"code,omitempty"`
		Message string `json:"message,omitempty"`
	}
	keyValue struct {
		Key   string `json:"key"`
		Value value  `json:"value"`
	}
	value struct {
		String *string `json:"stringValue,omitempty"`
		Bool   *bool   `json:"boolValue,omitempty"`
		Int    string  `json:"intValue,omitempty"`
		Double *double `json:"doubleValue,omitempty"`
	}
)

// document returns spans of one resource in the form of OTLP.
func document(spans []sdktrace.ReadOnlySpan) tracesData {
	var of resourceSpans
	places := map[string]int{}
	for _, s := range spans {
		name := s.InstrumentationScope().Name
		at, ok := places[name]
		if !ok {
			at = len(of.ScopeSpans)
			places[name] = at
			of.ScopeSpans = append(of.ScopeSpans, scopeSpans{Scope: scope{name}})
		}
		of.ScopeSpans[at].Spans = append(of.ScopeSpans[at].Spans, newSpan(s))
		of.Resource.Attributes = keyValues(s.Resource().Attributes())
	}
	return tracesData{[]resourceSpans{of}}
}

func newSpan(s sdktrace.ReadOnlySpan) span {
	own, parent := s.SpanContext(), s.Parent()
	one := span{
		TraceID: own.TraceID().String(), SpanID: own.SpanID().String(), TraceState: own.TraceState().String(),
		Flags: uint32(own.TraceFlags()),
		Name:  s.Name(), Kind: int(s.SpanKind()), // the numbers of the kinds are the same in both
		Start: nanoseconds(s.StartTime()), End: nanoseconds(s.EndTime()),
		Attributes: keyValues(s.Attributes()),
		Status:     status{Message: s.Status().Description},
	}
	if parent.HasSpanID() {
		one.ParentSpanID = parent.SpanID().String()
	}
	switch s.Status().Code { // the numbers of the codes are not
	case codes.Ok:
		one.Status.Code = 1
	case codes.Error:
		one.Status.Code = 2
	}
	return one
}

// double is a number of the protocol. JSON has no form for three numbers, which are text, as in all
// messages of Protocol Buffers (https://protobuf.dev/programming-guides/json).
type double float64

// MarshalJSON implements [json.Marshaler].
func (d double) MarshalJSON() ([]byte, error) {
	switch f := float64(d); {
	case math.IsNaN(f):
		return []byte(`"NaN"`), nil
	case math.IsInf(f, 1):
		return []byte(`"Infinity"`), nil
	case math.IsInf(f, -1):
		return []byte(`"-Infinity"`), nil
	default:
		return json.Marshal(f)
	}
}

func nanoseconds(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

func keyValues(attributes []attribute.KeyValue) []keyValue {
	var all []keyValue
	for _, a := range attributes {
		one := keyValue{Key: string(a.Key)}
		switch a.Value.Type() {
		case attribute.BOOL:
			one.Value.Bool = new(a.Value.AsBool())
		case attribute.INT64:
			one.Value.Int = strconv.FormatInt(a.Value.AsInt64(), 10)
		case attribute.FLOAT64:
			one.Value.Double = new(double(a.Value.AsFloat64()))
		default: // lists, as text; there are none
			one.Value.String = new(a.Value.String())
		}
		all = append(all, one)
	}
	return all
}
