//go:build linux

package cloud

import (
	"context"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room"
	_ "github.com/e2bctl/e2bctl/internal/cloud/reexec" // makes this program what the room starts it as
)

// roomEngine is the engine that isolates sandboxes with namespaces.
type roomEngine struct{ *room.Room }

func openRoom(ctx context.Context, o room.Options) (engine.Engine, error) {
	r, err := room.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	return roomEngine{r}, nil
}

func (r roomEngine) NewSandbox(ctx context.Context, o engine.SandboxOptions) (engine.Sandbox, error) {
	s, err := r.Room.NewSandbox(ctx, o)
	if err != nil {
		return nil, err
	}
	return s, nil
}
