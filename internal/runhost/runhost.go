// Package runhost defines the methods of a sandbox that package sandbox/agent needs in addition to
// the public API. With these methods, package agent sends requests to a kernel unchanged, and
// attaches data to a handle of a sandbox. Package sandbox implements the methods.
package runhost

import (
	"context"
	"io"
	"log/slog"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
)

// Host has the methods of a sandbox that a run needs. It is safe for concurrent use.
type Host interface {
	TemplateID() string
	Logger() *slog.Logger
	// ContextID returns the id of a context. If the parameter id is "", it returns the id of the
	// default context. ContextID needs the websocket transport.
	ContextID(ctx context.Context, id string) (string, error)
	// CheckPrivate returns nil only if the kernels refuse requests without the sandbox's tokens.
	CheckPrivate(ctx context.Context) error
	// Execute runs a request on the kernel of a context, over its websocket. It waits for its turn. If
	// ctx ends, Execute returns at once, and does not wait until the code has been interrupted.
	// Execute does not check the status of the reply.
	Execute(ctx context.Context, contextID string, request jupyter.ExecuteRequest, h kernelconn.Handler) (jupyter.ExecuteReply, error)
	// Attached returns the value that package agent attached to the handle of the sandbox. The first
	// call attaches the result of make.
	Attached(make func() any) any
}

// Collector builds an execution from messages. It is not safe for concurrent use.
type Collector interface {
	Message(m *jupyter.Message) error
	// Failed records the exception that ended the code. If an exception has arrived as a message,
	// Failed does nothing.
	Failed(name, value, traceback string)
	// Finished returns the *sandbox.Execution.
	Finished() any
}

// Of returns the Host of a *sandbox.Sandbox. NewCollector returns a Collector that keeps maxOutput
// bytes of each stream. Package sandbox sets both variables.
var (
	Of           func(sandbox any) Host
	NewCollector func(stdout, stderr io.Writer, maxOutput int64) Collector
)
