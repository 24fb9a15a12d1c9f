package sandbox

import (
	"context"
	"io"
	"log/slog"
	"sync"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
	"github.com/e2bctl/e2bctl/internal/runhost"
)

// init registers the functions of this package that package agent calls: see package runhost.
func init() {
	runhost.Of = func(sb any) runhost.Host { return runHost{sb.(*Sandbox)} }
	runhost.NewCollector = func(stdout, stderr io.Writer, maxOutput int64) runhost.Collector {
		return runCollector{newCollector(&RunCodeParams{Stdout: stdout, Stderr: stderr, MaxOutputBytes: maxOutput})}
	}
}

type runHost struct{ sb *Sandbox }

func (h runHost) TemplateID() string { return h.sb.remote.TemplateID }

func (h runHost) Logger() *slog.Logger { return h.sb.client.api.Logger() }

func (h runHost) ContextID(ctx context.Context, id string) (string, error) {
	if id != "" {
		return id, nil
	}
	ctx, end, err := h.sb.begin(ctx)
	if err != nil {
		return "", err
	}
	defer end()
	k, err := h.sb.code.websocket(ctx, "")
	if err != nil {
		return "", h.sb.failed(ctx, "begin a run", err)
	}
	return k.ID(), nil
}

func (h runHost) CheckPrivate(ctx context.Context) error { return h.sb.private(ctx) }

func (h runHost) Execute(ctx context.Context, contextID string, request jupyter.ExecuteRequest, handler kernelconn.Handler) (jupyter.ExecuteReply, error) {
	return h.sb.execute(ctx, contextID, request, handler)
}

func (h runHost) Attached(make func() any) any { return h.sb.attached.get(make) }

// attached stores the value that package agent attaches to a handle. The zero value is ready to
// use.
type attached struct {
	once  sync.Once
	value any
}

func (a *attached) get(make func() any) any {
	a.once.Do(func() { a.value = make() })
	return a.value
}

// runCollector implements [runhost.Collector] with a collector, for package agent.
type runCollector struct{ c *collector }

func (r runCollector) Message(m *jupyter.Message) error { return r.c.message(m) }

func (r runCollector) Failed(name, value, traceback string) {
	if r.c.execution.Error == nil {
		r.c.execution.Error = newExecutionError(name, value, traceback)
	}
}

func (r runCollector) Finished() any { return r.c.finished() }
