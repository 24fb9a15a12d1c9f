// Package otel reports calls of packages sandbox and agent as spans of OpenTelemetry:
// sandboxes that are created and connected to, commands, code, and the steps and tool
// calls of runs. It needs only OpenTelemetry's API. The program chooses the exporter:
//
//	client, err := sandbox.NewClient(otel.WithTracing(provider, nil))
//	…
//	run, err := agent.Begin(ctx, sb, &agent.Params{Trace: otel.AgentTrace(provider, nil)})
//
// The context of the span goes along, as traceparent and tracestate of the W3C: in a
// header of each request to the service and into a sandbox, and as TRACEPARENT and
// TRACESTATE in the environment of commands and of Python code, so that these can
// continue the trace. Baggage is not passed on. A command takes no longer for that, and a
// call of RunCode a millisecond.
//
// Spans have no text of commands, code and arguments, and no message of an exception,
// because these may hold secrets; [Params] has a switch for that.
package otel
