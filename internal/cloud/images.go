package cloud

import (
	"context"
	"fmt"
	"io"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/image"
	"github.com/e2bctl/e2bctl/internal/cloud/layers"
)

// ImageSources are sources of container images besides the images' registries. See
// [image.Options].
type ImageSources struct {
	Mirrors  map[string]string // maps registries to URLs
	Insecure []string          // registries without TLS
	Dirs     []string          // directories from which images may be read
}

// openImages returns the puller that fetches images for the room.
func (c *Cloud) openImages(kept *layers.Set) (*image.Puller, error) {
	o := c.options.Images
	puller, err := image.Open(image.Options{
		Store: c.store, Layers: kept, Mirrors: o.Mirrors, Insecure: o.Insecure, Archives: o.Dirs, Logger: c.logger("images"),
		Unpack: func(ctx context.Context, below []string, tar io.Reader, dir string) error {
			e, err := c.engines.get(ctx, engine.Room)
			if err != nil {
				return err
			}
			return e.UnpackTar(ctx, below, tar, dir)
		},
		MakeRoom: func(ctx context.Context, bytes int64) error { return c.builds.MakeRoom(ctx, bytes) },
	})
	if err != nil {
		return nil, fmt.Errorf("cloud: %w", err)
	}
	return puller, nil
}
