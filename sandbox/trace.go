package sandbox

import (
	"context"
	"net/http"

	"github.com/e2bctl/e2bctl/api"
)

// Trace contains hooks for the calls of a client, similar to the hooks of net/http/httptrace for
// requests. A hook is called when a call begins, and returns a context and a function. The call
// runs with that context. At the end of the call, the function is called with the results. Hooks
// are called from several goroutines. Fields may be nil. [github.com/e2bctl/e2bctl/sandbox/otel]
// turns the calls into spans.
//
// [github.com/e2bctl/e2bctl/sandbox/agent.Trace] contains the hooks of runs.
type Trace struct {
	// Create and Connect are called for [Client.Create] and [Client.Connect].
	Create  func(ctx context.Context, template string) (context.Context, func(*Sandbox, error))
	Connect func(ctx context.Context, id string) (context.Context, func(*Sandbox, error))
	// Command is called for [Commands.Run] and [Commands.Start]. For Start, the function is
	// called when the command ends, or when this program no longer follows it.
	Command func(ctx context.Context, sb *Sandbox, command string) (context.Context, func(*CommandResult, error))
	// Code is called for [Sandbox.RunCode] and [Sandbox.StreamCode].
	Code func(ctx context.Context, sb *Sandbox, code string) (context.Context, func(*Execution, error))
	// Headers adds headers to a request to the service or to a sandbox. Headers that the client sets
	// itself take precedence.
	Headers func(ctx context.Context, h http.Header)
	// Envs returns environment variables for a command, or for a call of RunCode in Python.
	// Variables in the call's params take precedence.
	Envs func(ctx context.Context) map[string]string
}

// WithTrace sets the hooks that are called when calls begin and end.
func WithTrace(t Trace) ClientOption {
	return clientOption(func(c *config) error {
		c.trace = t
		if t.Headers != nil {
			c.client = append(c.client, api.WithHeaders(t.Headers))
		}
		c.isOfClient("WithTrace")
		return nil
	})
}

// tracing calls a hook that may be nil.
func tracing[R any](ctx context.Context, hook func(context.Context, string) (context.Context, func(R, error)), about string) (context.Context, func(R, error)) {
	if hook == nil {
		return ctx, func(R, error) {}
	}
	return hook(ctx, about)
}

// tracingIn calls hook with the sandbox and the text of the call. If hook is nil, it returns
// ctx and a function that does nothing.
func tracingIn[R any](ctx context.Context, hook func(context.Context, *Sandbox, string) (context.Context, func(R, error)), sb *Sandbox, about string) (context.Context, func(R, error)) {
	if hook == nil {
		return ctx, func(R, error) {}
	}
	return hook(ctx, sb, about)
}

// envs returns the variables of a call together with those of the trace.
func (t *Trace) envs(ctx context.Context, own map[string]string) map[string]string {
	if t.Envs == nil {
		return own
	}
	return merge(t.Envs(ctx), own)
}

// headers adds the headers of the trace.
func (t *Trace) headers(ctx context.Context, h http.Header) {
	if t.Headers != nil {
		t.Headers(ctx, h)
	}
}
