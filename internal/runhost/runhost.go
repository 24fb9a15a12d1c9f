// Package runhost is the interface through which sandbox/agent uses a sandbox beyond
// its public API: it sends requests to a kernel unchanged, and stores data that belongs
// to a handle. Package sandbox provides the implementation.
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
	// ContextID returns the id of a context; "" stands for the default context. It
	// needs the websocket.
	ContextID(ctx context.Context, id string) (string, error)
	// CheckPrivate returns an error unless the kernels refuse requests without the
	// sandbox's tokens.
	CheckPrivate(ctx context.Context) error
	// Execute runs a request on the kernel of a context, over its websocket. It
	// waits for its turn. If ctx ends it returns at once, while the code is
	// interrupted. It does not look at the reply's status.
	Execute(ctx context.Context, contextID string, request jupyter.ExecuteRequest, h kernelconn.Handler) (jupyter.ExecuteReply, error)
	// Attached returns the value that package agent attached to the handle. The first call attaches
	// the result of make.
	Attached(make func() any) any
}

// Collector builds an execution from messages. It is not safe for concurrent use.
type Collector interface {
	Message(m *jupyter.Message) error
	// Failed records the exception that ended the code, if none arrived as a message.
	Failed(name, value, traceback string)
	// Finished returns the *sandbox.Execution.
	Finished() any
}

// Of returns the host of a *sandbox.Sandbox, and NewCollector returns a collector
// that keeps maxOutput bytes of each stream. Package sandbox sets both.
var (
	Of           func(sandbox any) Host
	NewCollector func(stdout, stderr io.Writer, maxOutput int64) Collector
)
