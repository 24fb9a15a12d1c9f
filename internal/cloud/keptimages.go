package cloud

import (
	"context"
	"sync"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/image"
)

// imageKeeper is an engine that keeps the images of templates itself.
type imageKeeper interface {
	image.Keeper
	// RemoveImages removes the images that are not needed.
	RemoveImages(ctx context.Context, needed func(digest string) bool) error
}

// keptImages hands images to the engine that keeps them. For each image there is a layer
// without files: the image stays as long as a template, a step of a build or a sandbox holds
// that layer.
type keptImages struct {
	cloud *Cloud
	to    imageKeeper
}

// Pull fetches an image, unless the engine has it.
func (k keptImages) Pull(ctx context.Context, reference string, auth *image.Auth, progress func(line string)) (image.Image, error) {
	c := k.cloud
	c.keeping.mu.RLock() // an image that has no layer yet must not be removed
	img, err := c.images.Give(ctx, reference, auth, k.to, progress)
	if err == nil {
		var id string
		if id, err = c.kept.Outside(img.Digest); err == nil {
			img.Layers = []string{id}
		}
	}
	c.keeping.mu.RUnlock()
	c.collectImages() // a collection in the meantime has removed nothing
	return img, err
}

// keeping collects the images that are no longer needed.
type keeping struct {
	mu sync.RWMutex // locked for reading while an image is handed over, for writing while images are removed

	state   sync.Mutex
	begun   bool // all users of images hold their layers
	closed  bool
	keeper  imageKeeper // nil: not open
	working sync.WaitGroup
	running bool
	again   bool // a collection was requested while one ran
}

// keptBy records the engine if it keeps images.
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

// begin is called when all users of images hold their layers.
func (k *keeping) begin(collect func()) {
	k.state.Lock()
	k.begun = true
	k.state.Unlock()
	collect()
}

// close waits until the current removal of images has ended.
func (k *keeping) close() {
	k.state.Lock()
	k.closed = true
	k.state.Unlock()
	k.working.Wait()
}

// collectImages makes the engine remove the images that are not needed, in the background.
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
	if !k.mu.TryLock() { // an image is being handed over: Pull collects after that
		return
	}
	defer k.mu.Unlock()
	ctx := context.Background()
	if err := keeper.RemoveImages(ctx, c.kept.Needs); err != nil {
		c.options.Logger.WarnContext(ctx, "images that are no longer needed could not be removed", "error", err)
	}
}
