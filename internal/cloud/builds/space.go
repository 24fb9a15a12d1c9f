package builds

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
)

// Space is the disk space that builds use. Cache counts cached steps and kept images. Uploads
// counts archives. Layers counts the layers that templates use, and also the layers that no template
// uses and that are not cached.
type Space struct {
	Bytes, Cap             int64
	Layers, Cache, Uploads Taken
}

// Taken is the number and the total size of the entries of one kind. For the cache, Count is
// the number of cached steps and of layers of kept images.
type Taken struct {
	Count int
	Bytes int64
}

// Space returns the disk space in use.
func (b *Builder) Space(ctx context.Context) (Space, error) {
	sizes, err := b.options.Store.Usage(ctx, store.Layers)
	if err != nil {
		return Space{}, err
	}
	space := Space{Cap: b.options.Cap, Cache: Taken{Count: b.options.Cache.count()}}
	cached, used := b.options.Cache.held(), b.used()
	for _, one := range b.options.KeptImages() {
		for _, id := range one.Layers {
			cached[id] = true
			space.Cache.Count++
		}
	}
	for id, bytes := range sizes {
		space.Bytes += bytes
		if cached[id] && !used[id] {
			space.Cache.Bytes += bytes
			continue
		}
		space.Layers.Count++
		space.Layers.Bytes += bytes
	}
	for _, bytes := range b.uploads.sizes() {
		space.Bytes += bytes
		space.Uploads.Count++
		space.Uploads.Bytes += bytes
	}
	return space, nil
}

// used returns the layers that templates use.
func (b *Builder) used() map[string]bool {
	used := map[string]bool{}
	for _, t := range b.options.Templates.All() {
		for _, build := range t.Builds {
			for _, id := range build.Layers {
				used[id] = true
			}
		}
	}
	return used
}

// needed returns the hashes of the archives that unfinished builds still need.
func (b *Builder) needed() map[string]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	needed := map[string]bool{}
	for _, j := range b.order {
		for _, hash := range j.archives {
			needed[hash] = needed[hash] || j.status == templates.Building
		}
	}
	return needed
}

// cached returns the cached steps and the kept images. All of them can be made again.
func (b *Builder) cached() []layers.Use {
	return append(b.options.KeptImages(), b.options.Cache.uses()...)
}

// EmptyCache drops all cached steps and images, and all archives that no unfinished build needs.
func (b *Builder) EmptyCache() error {
	var failed []error
	needed := b.needed()
	for _, one := range append(b.cached(), b.uploads.uses()...) {
		if !needed[one.Name] {
			failed = append(failed, one.Drop())
		}
	}
	return errors.Join(failed...)
}

// SpaceError reports that the space for layers, cached steps and archives is used up.
type SpaceError struct{ Space Space }

func (e *SpaceError) Error() string {
	const mib = 1 << 20
	return fmt.Sprintf("no space: templates and snapshots take %d MiB of the %d MiB that they may take: delete those that are no longer needed, or start the local cloud with more", e.Space.Bytes/mib, e.Space.Cap/mib)
}

// MakeRoom drops cached steps, images and archives, the least recently used first, until there
// is space for the given number of bytes. It keeps the layers of templates, and the cached steps
// whose layers all belong to templates. If the space is still too small, MakeRoom returns a
// [*SpaceError].
func (b *Builder) MakeRoom(ctx context.Context, bytes int64) error {
	space, err := b.Space(ctx)
	if err != nil {
		return err
	}
	if space.Bytes+bytes <= space.Cap {
		return nil
	}
	b.options.Logger.InfoContext(ctx, "cached steps and archives make room", "bytes", space.Bytes, "cap", space.Cap)
	for _, one := range b.droppable() {
		if err := one.Drop(); err != nil {
			return err
		}
		if space, err = b.Space(ctx); err != nil || space.Bytes+bytes <= space.Cap {
			return err
		}
	}
	return &SpaceError{space}
}

// trimImages drops kept images, least recently used first, until they are within ImageCap. It keeps
// the one with a key in the cache.
func (b *Builder) trimImages(ctx context.Context, newest string) error {
	if b.options.ImageCap == 0 {
		return nil
	}
	sizes, err := b.options.Store.Usage(ctx, store.Layers)
	if err != nil {
		return err
	}
	images, steps := b.options.Cache.split()
	used := b.used()
	for _, step := range steps {
		for _, id := range step.Layers {
			used[id] = true
		}
	}
	images = append(images, b.options.KeptImages()...)
	slices.SortStableFunc(images, func(x, y layers.Use) int { return x.At.Compare(y.At) })
	holders, total := map[string]int{}, int64(0)
	for _, one := range images {
		for _, id := range one.Layers {
			if used[id] {
				continue
			}
			if holders[id]++; holders[id] == 1 {
				total += sizes[id]
			}
		}
	}
	for _, one := range images {
		if total <= b.options.ImageCap {
			break
		}
		if one.Name == newest {
			continue
		}
		if err := one.Drop(); err != nil {
			return err
		}
		for _, id := range one.Layers {
			if holders[id]--; holders[id] == 0 && !used[id] {
				total -= sizes[id]
			}
		}
	}
	return nil
}

// droppable returns the cached steps, images and archives that can be dropped to make room,
// least recently used first.
func (b *Builder) droppable() []layers.Use {
	used := b.used()
	all := slices.DeleteFunc(b.cached(), func(one layers.Use) bool {
		return !slices.ContainsFunc(one.Layers, func(id string) bool { return !used[id] })
	})
	needed := b.needed()
	all = append(all, slices.DeleteFunc(b.uploads.uses(), func(one layers.Use) bool { return needed[one.Name] })...)
	slices.SortStableFunc(all, func(x, y layers.Use) int { return x.At.Compare(y.At) })
	return all
}
