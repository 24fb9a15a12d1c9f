package cloud

import (
	"context"
	"errors"
	"io"
	"sync"

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
	MaxBytes int64             // maximum bytes of images that no template and no cached step uses; 0: no bound of their own
}

// openImages returns the puller that fetches images for the room.
func (c *Cloud) openImages(kept *layers.Set) (*image.Puller, error) {
	o := c.options.Images
	return image.Open(image.Options{
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
}

// imageKeeper is implemented by engines that store the images of templates themselves.
type imageKeeper interface {
	image.Keeper
	// RemoveImages removes each image for which needed returns false.
	RemoveImages(ctx context.Context, needed func(digest string) bool) error
}

// keptImages passes images to the engine, which stores them. Each image has a layer without
// files. The image is kept as long as a template, a step of a build or a sandbox holds this
// layer.
type keptImages struct {
	cloud *Cloud
	to    imageKeeper
}

// Pull fetches an image, unless the engine already has it.
func (k keptImages) Pull(ctx context.Context, reference string, auth *image.Auth, progress func(line string)) (image.Image, error) {
	c := k.cloud
	c.keeping.mu.RLock() // an image that does not have its layer yet must not be removed
	img, err := c.images.Give(ctx, reference, auth, k.to, progress)
	if err == nil {
		var id string
		if id, err = c.kept.Outside(img.Digest); err == nil {
			img.Layers = []string{id}
		}
	}
	c.keeping.mu.RUnlock()
	c.collectImages() // a collection that ran meanwhile has removed nothing
	return img, err
}

// keeping removes the images that are no longer needed.
type keeping struct {
	mu sync.RWMutex // read-locked while an image is passed to the engine; locked while images are removed

	state   sync.Mutex
	begun   bool // all users of images hold their layers by now
	closed  bool
	keeper  imageKeeper // nil: the engine is not open
	working sync.WaitGroup
	running bool
	again   bool // a collection was requested while another was running
}

// keptBy makes e the engine from which unneeded images are removed, and calls collectImages. It does
// nothing if e does not store images.
func (c *Cloud) keptBy(e engine.Engine) {
	keeper, keeps := e.(imageKeeper)
	if !keeps {
		return
	}
	c.keeping.state.Lock()
	c.keeping.keeper = keeper
	c.keeping.state.Unlock()
	c.collectImages()
}

// begin allows collections. It must be called once all users of images hold their layers.
func (k *keeping) begin(collect func()) {
	k.state.Lock()
	k.begun = true
	k.state.Unlock()
	collect()
}

// close waits for a running removal of images to end.
func (k *keeping) close() {
	k.state.Lock()
	k.closed = true
	k.state.Unlock()
	k.working.Wait()
}

// collectImages starts the removal of the images that are not needed. It does not wait for the
// removal to end.
func (c *Cloud) collectImages() {
	k := &c.keeping
	k.state.Lock()
	defer k.state.Unlock()
	if !k.begun || k.closed || k.keeper == nil {
		return
	}
	if k.running {
		k.again = true
		return
	}
	k.running = true
	k.working.Go(func() {
		for {
			c.collectOnce()
			k.state.Lock()
			if !k.again {
				k.running = false
				k.state.Unlock()
				return
			}
			k.again = false
			k.state.Unlock()
		}
	})
}

func (c *Cloud) collectOnce() {
	k := &c.keeping
	k.state.Lock()
	keeper := k.keeper
	k.state.Unlock()
	if !k.mu.TryLock() { // an image is being passed to the engine: Pull collects afterwards
		return
	}
	defer k.mu.Unlock()
	ctx := context.Background()
	if err := keeper.RemoveImages(ctx, c.kept.Needs); err != nil {
		c.options.Logger.WarnContext(ctx, "images that are no longer needed could not be removed", "error", err)
	}
}

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

// sharing implements layers.Sharing with the current engine of the cloud.
type sharing struct{ cloud *Cloud }

func (s sharing) Merge(ctx context.Context, dirs []string, to string) error {
	return s.cloud.ownEngine().Merge(ctx, dirs, to)
}
