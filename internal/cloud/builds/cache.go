package builds

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
)

// Cache stores the results of earlier steps, and holds their layers. It is safe for concurrent
// use.
type Cache struct {
	store  *store.Store
	layers *layers.Set

	mu      sync.Mutex // also held while a change is written to the store
	entries map[string]*cached
}

// cached is the stored result of a step, with the time of its last use. Its field names are
// part of the format.
type cached struct {
	State templates.Content
	Used  time.Time
	// LookedUp is the time at which the last lookup of an image began, if the entry is the content of
	// an image. If the registry did not answer, LookedUp is an earlier time, so that the next lookup
	// is due after lookUpPause. For the result of a step, LookedUp is zero.
	LookedUp time.Time `json:",omitzero"`
}

// OpenCache returns the cache of a store. It must be called before layers that nobody holds are
// removed. It drops unreadable entries, whose steps then run again.
func OpenCache(s *store.Store, set *layers.Set, logger *slog.Logger) *Cache {
	c := &Cache{store: s, layers: set, entries: map[string]*cached{}}
	all, err := s.Records(store.Cache)
	if err != nil {
		logger.WarnContext(context.Background(), "steps of builds that cannot be read will run again", "error", err)
	}
	for _, r := range all {
		var entry cached
		err := json.Unmarshal(r.Value, &entry)
		if err == nil {
			_, err = set.Hold(entry.State.Layers...)
		}
		if err != nil {
			logger.WarnContext(context.Background(), "a step of a build that cannot be read will run again", "error", err)
			_ = s.Delete(store.Cache, r.ID) // if this fails, the next start tries again
			continue
		}
		c.entries[r.ID] = &entry
	}
	return c
}

// get returns the result of a step. It holds the layers of the result for the caller.
func (c *Cache) get(key string) (templates.Content, bool) { return c.getNewer(key, time.Time{}) }

// getNewer returns the content of an image that was looked up at or after a time. It holds the
// layers of the content for the caller.
func (c *Cache) getNewer(key string, since time.Time) (templates.Content, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry := c.entries[key]
	if entry == nil || entry.LookedUp.Before(since) {
		return templates.Content{}, false
	}
	if _, err := c.layers.Hold(entry.State.Layers...); err != nil {
		return templates.Content{}, false // unreachable: the cache holds these layers
	}
	entry.Used = time.Now().UTC()
	return entry.State, true
}

// put records the result of a step.
func (c *Cache) put(key string, s templates.Content) error { return c.putLookedUp(key, s, time.Time{}) }

// putLookedUp records the content of an image. at becomes LookedUp of the entry.
func (c *Cache) putLookedUp(key string, s templates.Content, at time.Time) error {
	entry := &cached{s, time.Now().UTC(), at.UTC()}
	value, err := json.Marshal(entry)
	if err != nil {
		return err
	}
	if _, err := c.layers.Hold(s.Layers...); err != nil {
		return err
	}
	c.mu.Lock()
	unused := s.Layers
	if _, err = c.store.Put(store.Cache, key, value, ""); err == nil {
		unused = nil
		if former := c.entries[key]; former != nil {
			unused = former.State.Layers
		}
		c.entries[key] = entry
	}
	c.mu.Unlock()
	c.layers.Release(unused...)
	return err
}

// uses returns the last use of each entry.
func (c *Cache) uses() []layers.Use {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []layers.Use
	for key, entry := range c.entries {
		all = append(all, layers.Use{Name: key, At: entry.Used, Layers: entry.State.Layers, Drop: func() error { return c.drop(key) }})
	}
	return all
}

// split returns the last use of each image for sandboxes, and of each result of a step.
func (c *Cache) split() (images, steps []layers.Use) {
	all := c.uses()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range all {
		if entry := c.entries[one.Name]; entry != nil && !entry.LookedUp.IsZero() {
			images = append(images, one)
		} else {
			steps = append(steps, one)
		}
	}
	return images, steps
}

// held returns the layers that the entries hold.
func (c *Cache) held() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]bool{}
	for _, entry := range c.entries {
		for _, id := range entry.State.Layers {
			all[id] = true
		}
	}
	return all
}

// drop removes the result of a step.
func (c *Cache) drop(key string) error {
	c.mu.Lock()
	entry := c.entries[key]
	if entry == nil {
		c.mu.Unlock()
		return nil
	}
	err := c.store.Delete(store.Cache, key)
	if err == nil {
		delete(c.entries, key)
	}
	c.mu.Unlock()
	if err == nil {
		c.layers.Release(entry.State.Layers...)
	}
	return err
}

func (c *Cache) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries)
}
