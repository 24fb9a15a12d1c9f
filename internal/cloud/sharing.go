package cloud

import (
	"context"
	"errors"

	"github.com/e2bctl/e2bctl/internal/cloud/layers"
)

// sharing returns the function of the engine that shares directories between sandboxes. It
// returns nil if the machine does not allow sharing in the store's directory.
func (c *Cloud) sharing() layers.Sharing {
	ctx := context.Background()
	dir, err := c.store.NewDir()
	if err == nil {
		err = errors.Join(c.ownEngine().CheckLayers(ctx, dir), c.store.Discard(dir))
	}
	if err != nil {
		c.options.Logger.InfoContext(ctx, "each sandbox begins with a copy of the files of its snapshot or template", "reason", err)
		return nil
	}
	return sharing{c}
}

// sharing implements layers.Sharing with the cloud's current engine.
type sharing struct{ cloud *Cloud }

func (s sharing) Merge(ctx context.Context, dirs []string, to string) error {
	return s.cloud.ownEngine().Merge(ctx, dirs, to)
}
