package image

import (
	"fmt"
	"sync"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestLocksAreReleased checks that no call keeps a lock. It runs before the tests that would wait for it.
func TestLocksAreReleased(t *testing.T) { //nolint:paralleltest // see above
	w := newWorld(t, nil)
	id, err := w.layers.Make(func(string) error { return nil })
	must.Do(t, err)
	c, locks, p := w.cache, &w.locks, &pull{Puller: w.Puller}
	f := &found{asked: "sha256:1", digest: "sha256:1", blobs: []blob{{chain: "chain"}}}
	release := func() {}
	for _, call := range []struct {
		name string
		mu   *sync.Mutex
		do   func() error
	}{
		{"get of none", &c.mu, func() error { c.get("chain"); return nil }},
		{"put", &c.mu, func() error { return c.put("chain", 0, id) }},
		{"has", &c.mu, func() error { c.has("chain"); return nil }},
		{"touch", &c.mu, func() error { c.touch(f); return nil }},
		{"putImage", &c.mu, func() error { c.putImage(f); return nil }},
		{"image", &c.mu, func() error { c.image("sha256:1"); return nil }},
		{"image of none", &c.mu, func() error { c.image("sha256:2"); return nil }},
		{"uses", &c.mu, func() error { c.uses(); return nil }},
		{"drop", &c.mu, func() error { return c.drop("chain") }},
		{"image without a layer", &c.mu, func() error { c.image("sha256:1"); return nil }},
		{"drop of none", &c.mu, func() error { return c.drop("chain") }},
		{"lock", &locks.mu, func() (err error) { release, err = locks.lock(t.Context(), "name"); return err }},
		{"release", &locks.mu, func() error { release(); return nil }},
		{"count", &p.mu, func() error { return p.count(1) }},
		{"progress", &p.mu, func() error { p.progress("a line"); return nil }},
		{"holdUntilEnd", &p.mu, func() error { p.holdUntilEnd(id); return nil }},
	} {
		if must.Do(t, call.do()); !call.mu.TryLock() {
			t.Fatalf("%s keeps the lock", call.name)
		}
		call.mu.Unlock()
	}
	w.layers.Release(id)
}

// TestPullEnds checks that no pull waits for a lock, a place or a layer that an earlier one has not given back.
// It runs before the tests that would wait for it.
func TestPullEnds(t *testing.T) { //nolint:paralleltest // see above
	ctx := patience.Context(t)
	w := newWorld(t, nil)
	var all []v1.Layer
	for i := range maxDownloads + 2 {
		all = append(all, layerOf(t, types.OCILayer, fmt.Sprint(i), "text"))
	}
	for _, ref := range []string{w.push(t, "one", imageOf(t, all...)), w.push(t, "two", imageOf(t, all[1:]...)), w.host() + "/one"} {
		img, err := w.Pull(ctx, ref, nil, nil)
		must.Do(t, err)
		if len(w.downloads) != 0 || len(w.locks.all) != 0 {
			t.Fatalf("%s: %d downloads and %d locks are left, want none", ref, len(w.downloads), len(w.locks.all))
		}
		w.layers.Release(img.Layers...)
	}
	release, err := w.locks.lock(ctx, "name")
	must.Do(t, err)
	next := make(chan error, 1)
	go func() {
		release, err := w.locks.lock(ctx, "name")
		if err == nil {
			release()
		}
		next <- err
	}()
	patience.Until(t, "another call waits for the lock", func() bool {
		w.locks.mu.Lock()
		defer w.locks.mu.Unlock()
		return w.locks.all["name"].users == 2
	})
	release()
	must.Do(t, <-next)
}
