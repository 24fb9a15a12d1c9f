//go:build linux

package room

import (
	"context"
	"fmt"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// CheckLayers returns an error if directories in dir cannot be layers.
func (r *Room) CheckLayers(context.Context, string) error {
	return fmt.Errorf("%w: not built yet", engine.ErrNoLayers)
}

// Unpack makes a layer of saved files.
func (r *Room) Unpack(context.Context, string) error {
	return fmt.Errorf("%w: not built yet", engine.ErrNoLayers)
}

// Merge makes one layer of several.
func (r *Room) Merge(context.Context, []string, string) error {
	return fmt.Errorf("%w: not built yet", engine.ErrNoLayers)
}
