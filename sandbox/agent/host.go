package agent

import (
	"context"
	"io"
	"log/slog"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
	"github.com/e2bctl/e2bctl/internal/runhost"
	"github.com/e2bctl/e2bctl/sandbox"
)

// runHost is the part of a sandbox that runs need.
type runHost interface {
	execute(ctx context.Context, contextID string, request jupyter.ExecuteRequest, h kernelconn.Handler) (jupyter.ExecuteReply, error)
	// upload writes a file, and open reads one. Only root may read these files.
	upload(ctx context.Context, path string, r io.Reader) error
	open(ctx context.Context, path string) (io.ReadCloser, error)
	about() about
}

// about contains the logger, and data about a sandbox for the records of a run.
type about struct {
	sandbox, template string
	logger            *slog.Logger
}

type sandboxHost struct {
	sb   *sandbox.Sandbox
	host runhost.Host
}

func (h sandboxHost) execute(ctx context.Context, contextID string, request jupyter.ExecuteRequest, handler kernelconn.Handler) (jupyter.ExecuteReply, error) {
	return h.host.Execute(ctx, contextID, request, handler)
}

func (h sandboxHost) upload(ctx context.Context, path string, r io.Reader) error {
	return h.sb.Files.WriteFrom(ctx, path, r, &sandbox.FileParams{User: "root"})
}

func (h sandboxHost) open(ctx context.Context, path string) (io.ReadCloser, error) {
	return h.sb.Files.Open(ctx, path, &sandbox.FileParams{User: "root"})
}

func (h sandboxHost) about() about {
	return about{sandbox: h.sb.ID(), template: h.host.TemplateID(), logger: h.host.Logger()}
}
