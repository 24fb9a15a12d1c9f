//go:build linux

package cloud

import (
	"context"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room"
)

// roomEngine is the engine that isolates sandboxes with namespaces.
type roomEngine struct{ *room.Room }

func openRoom(ctx context.Context, o room.Options) (engine, error) {
	r, err := room.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	return roomEngine{r}, nil
}

func (r roomEngine) newSandbox(ctx context.Context, o room.SandboxOptions) (instance, error) {
	s, err := r.NewSandbox(ctx, o)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (r roomEngine) report() room.Report   { return r.Report() }
func (r roomEngine) done() <-chan struct{} { return r.Done() }
func (r roomEngine) close() error          { return r.Close() }
