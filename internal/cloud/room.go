//go:build linux

package cloud

import (
	"context"

	"github.com/e2bctl/e2bctl/internal/cloud/runtime"
)

// realRoom is the room that isolates.
type realRoom struct{ *runtime.Room }

func openRoom(ctx context.Context, o runtime.Options) (room, error) {
	r, err := runtime.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	return realRoom{r}, nil
}

func (r realRoom) newSandbox(ctx context.Context, o runtime.SandboxOptions) (instance, error) {
	s, err := r.NewSandbox(ctx, o)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (r realRoom) report() runtime.Report { return r.Report() }
func (r realRoom) done() <-chan struct{}  { return r.Done() }
func (r realRoom) close() error           { return r.Close() }
