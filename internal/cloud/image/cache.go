package image

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
)

// maxImages bounds the number of images that are recorded by digest.
const maxImages = 1000

// Prefixes of record ids. The id of a single layer of an image has no prefix.
const (
	mergedPrefix = "merged-" // all layers of an image, merged into one
	imagePrefix  = "image-"  // an image
)

// cache stores the unpacked layers by their chain ids, and holds them in the set of layers. It also
// stores images. For a stored image, the registry only needs to confirm that the tag still points
// to this image.
type cache struct {
	store  *store.Store
	layers *layers.Set
	logger *slog.Logger

	mu      sync.Mutex // also held while a change is written to the store
	entries map[string]*entry
}

// entry is a layer or an image. Its field names are part of the format.
type entry struct {
	Layer string `json:",omitempty"` // id of the layer; "": the entry is an image
	Depth int    `json:",omitempty"` // number of layers below the layer
	Image *known `json:",omitempty"`
	Used  time.Time
}

// known is the record of an image.
type known struct {
	Digest, Arch string // digest of the manifest; processor architecture of the programs
	Config       Config
	Blobs        []knownBlob
}

type knownBlob struct{ Chain, Digest string }

func openCache(o Options) *cache {
	c := &cache{store: o.Store, layers: o.Layers, logger: o.Logger, entries: map[string]*entry{}}
	all, err := o.Store.Records(store.Images)
	if err != nil {
		o.Logger.WarnContext(context.Background(), "images that cannot be read will be fetched again", "error", err)
	}
	for _, r := range all {
		var e entry
		err := json.Unmarshal(r.Value, &e)
		if err == nil {
			_, err = c.layers.Hold(e.ids()...)
		}
		if err != nil {
			o.Logger.WarnContext(context.Background(), "a part of an image that cannot be read will be fetched again", "error", err)
			_ = o.Store.Delete(store.Images, r.ID) // if this fails, the next start tries again
			continue
		}
		c.entries[r.ID] = &e
	}
	return c
}

// ids returns the layers that an entry holds.
func (e *entry) ids() []string {
	if e.Layer == "" {
		return nil
	}
	return []string{e.Layer}
}

func (c *cache) has(chain string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries[chain] != nil
}

// get returns the layer with a chain id, and holds it for the caller.
func (c *cache) get(chain string) (id string, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[chain]
	if e == nil {
		return "", false
	}
	if _, err := c.layers.Hold(e.Layer); err != nil {
		return "", false // unreachable: the cache holds the layer
	}
	e.Used = time.Now().UTC()
	return e.Layer, true
}

// touch records the use of an image. All of its layers get the same time, so that no layer is
// dropped before the layers above it.
func (c *cache) touch(f *found) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now().UTC()
	for _, b := range f.blobs {
		if e := c.entries[b.chain]; e != nil {
			e.Used = now
		}
	}
}

// put adds a layer that has depth layers below it.
func (c *cache) put(chain string, depth int, id string) error {
	if _, err := c.layers.Hold(id); err != nil {
		return err
	}
	former, err := c.set(chain, &entry{Layer: id, Depth: depth})
	if err != nil {
		former = &entry{Layer: id}
	}
	if former != nil {
		c.layers.Release(former.ids()...)
	}
	return err
}

// set stores an entry. It returns the previous entry, or nil.
func (c *cache) set(key string, e *entry) (former *entry, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.Used = time.Now().UTC()
	value, err := json.Marshal(e)
	if err == nil {
		_, err = c.store.Put(store.Images, key, value, "")
	}
	if err != nil {
		return nil, err
	}
	former = c.entries[key]
	c.entries[key] = e
	return former, nil
}

// image returns the record of the image with a digest. It returns nil if the image is unknown,
// or if one of its layers is not cached.
func (c *cache) image(digest string) *known {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[imageKey(digest)]
	if e == nil || e.Image == nil || e.Image.Arch != runtime.GOARCH {
		return nil
	}
	if slices.ContainsFunc(e.Image.Blobs, func(b knownBlob) bool { return c.entries[b.Chain] == nil }) {
		return nil
	}
	e.Used = time.Now().UTC()
	return e.Image
}

// putImage records an image under the digest that was requested. If putImage fails, the only
// consequence is that the image is fetched again.
func (c *cache) putImage(f *found) {
	if f.asked == "" || c.has(imageKey(f.asked)) {
		return
	}
	one := &known{Digest: f.digest, Arch: runtime.GOARCH, Config: f.config}
	for _, b := range f.blobs {
		one.Blobs = append(one.Blobs, knownBlob{Chain: b.chain, Digest: b.digest})
	}
	if _, err := c.set(imageKey(f.asked), &entry{Image: one}); err != nil {
		c.logger.WarnContext(context.Background(), "an image will be looked up again", "error", err)
	}
	for _, use := range c.surplus() {
		if err := use.Drop(); err != nil {
			c.logger.WarnContext(context.Background(), "an image cannot be forgotten", "error", err)
		}
	}
}

// surplus returns the images beyond the newest maxImages.
func (c *cache) surplus() []layers.Use {
	images := slices.DeleteFunc(c.uses(), func(u layers.Use) bool { return len(u.Layers) > 0 })
	slices.SortFunc(images, func(a, b layers.Use) int { return a.At.Compare(b.At) })
	return images[:max(0, len(images)-maxImages)]
}

func imageKey(digest string) string { return imagePrefix + strings.ReplaceAll(digest, ":", "-") }

// uses returns all entries. A layer comes before the layers below it, because it is useless
// without them.
func (c *cache) uses() []layers.Use {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []layers.Use
	for key, e := range c.entries {
		all = append(all, layers.Use{Name: key, At: e.Used, Layers: e.ids(), Drop: func() error { return c.drop(key) }})
	}
	slices.SortFunc(all, func(a, b layers.Use) int {
		return cmp.Or(cmp.Compare(c.entries[b.Name].Depth, c.entries[a.Name].Depth), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// drop removes an entry.
func (c *cache) drop(key string) error {
	e, err := c.remove(key)
	if err == nil && e != nil {
		c.layers.Release(e.ids()...)
	}
	return err
}

func (c *cache) remove(key string) (*entry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[key]
	if e == nil {
		return nil, nil
	}
	if err := c.store.Delete(store.Images, key); err != nil {
		return nil, err
	}
	delete(c.entries, key)
	return e, nil
}
