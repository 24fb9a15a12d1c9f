// Package otel reports calls of packages sandbox and agent as OpenTelemetry spans: creations
// and connections of sandboxes, commands, code, and the steps and tool calls of runs. It also reports
// metrics: the durations of calls ([Params].Meters), the state of pools ([ObservePool]) and the
// sandboxes of a service ([ObserveService]). It needs only OpenTelemetry's API. The program selects the
// exporter:
//
//	client, err := sandbox.NewClient(otel.WithTracing(provider, nil))
//	…
//	run, err := agent.Begin(ctx, sb, &agent.Params{Trace: otel.AgentTrace(provider, nil)})
//
// The context of the span is passed on as traceparent and tracestate of the W3C: in a header of
// each request to the service and to a sandbox, and as TRACEPARENT and TRACESTATE in the
// environment of commands and of Python code, so that commands and code can continue the trace.
// Baggage is not passed on. Passing on the context does not make a command slower, and makes a call
// of RunCode a millisecond slower.
//
// Spans do not contain the text of commands, code and arguments, or the message of an
// exception, because these may contain secrets. [Params].Content adds them.
package otel
