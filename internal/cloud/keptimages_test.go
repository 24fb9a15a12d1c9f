//go:build linux

package cloud

import (
	"context"
	"errors"
	"io"
	"maps"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/image"
	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
	"github.com/e2bctl/e2bctl/internal/must"
)

// keepingRoom is an engine that stores images itself.
type keepingRoom struct {
	*fakeRoom
	mu    sync.Mutex
	has   map[string]bool
	fails error // error of Load
}

func (k *keepingRoom) Architecture() string { return runtime.GOARCH }

func (k *keepingRoom) Has(_ context.Context, digest string) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.has[digest], nil
}

func (k *keepingRoom) Name(string) (tag string, labels map[string]string) {
	return "localhost/x:1", nil
}

func (k *keepingRoom) Load(_ context.Context, digest string, archive io.Reader) error {
	_, err := io.Copy(io.Discard, archive)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.has[digest] = true
	return errors.Join(err, k.fails)
}

func (k *keepingRoom) RemoveImages(_ context.Context, needed func(digest string) bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.has, func(digest string, _ bool) bool { return !needed(digest) })
	return nil
}

func (k *keepingRoom) digests() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Keys(k.has))
}

// TestKeptImages checks that an engine keeps an image as long as it is in use, and that images are
// removed that only a killed server used.
func TestKeptImages(t *testing.T) {
	t.Parallel()
	state, has := t.TempDir(), map[string]bool{"sha256:lost": true}
	with := func(do func(c *Cloud, images keptImages)) {
		t.Helper()
		k := &keepingRoom{fakeRoom: newTwoEngines().docker, has: has}
		c, err := start(t.Context(), Options{State: state, Dir: t.TempDir(), Python: &pyenv.Env{Python: "/bin/python3"}, Engine: engine.Docker}, map[engine.Name]opener{
			engine.Docker: func(context.Context, *Cloud, string) (engine.Engine, error) { return k, nil },
		})
		must.Do(t, err)
		do(c, keptImages{c, k})
		if err := c.Close(); err != nil { // waits for the current removal
			t.Fatal(err)
		}
		has = k.has
	}
	with(func(c *Cloud, images keptImages) {
		target, err := c.buildTarget(t.Context(), engine.Docker)
		if _, ok := target.Images.(keptImages); !ok || err != nil || !target.Chosen {
			t.Errorf("got %+v, %v, want builds that begin with images", target, err)
		}
		images.to.(*keepingRoom).lacks = engine.Promises{engine.Images: "the moon is new"}
		target, err = c.buildTarget(t.Context(), engine.Docker)
		if target.Images != nil || target.NoImages != "the moon is new" || err != nil {
			t.Errorf("got %+v, %v, want no images, and why", target, err)
		}
		images.to.(*keepingRoom).fails = errors.New("the daemon died")
		if _, err := images.Pull(t.Context(), image.Scratch, nil, nil); !errors.Is(err, images.to.(*keepingRoom).fails) {
			t.Errorf("got %v, want why it failed", err)
		}
	})
	if len(has) > 0 {
		t.Errorf("got %v, want neither what was lost nor what failed", has)
	}
	with(func(c *Cloud, images keptImages) {
		img, err := images.Pull(t.Context(), image.Scratch, nil, nil)
		if err != nil || len(img.Layers) != 1 {
			t.Fatalf("got %+v, %v, want a layer that stands for it", img, err)
		}
		again, err := images.Pull(t.Context(), image.Scratch, nil, nil)
		if err != nil || !slices.Equal(again.Layers, img.Layers) {
			t.Fatalf("got %+v, %v, want the same layer", again, err)
		}
		c.kept.Release(img.Layers...)
		if got := images.to.(*keepingRoom).digests(); !slices.Equal(got, []string{img.Digest}) {
			t.Errorf("got %v, want the image that is still held", got)
		}
		c.kept.Release(again.Layers...)
	})
	if len(has) > 0 {
		t.Errorf("got %v of what nobody holds, want nothing", has)
	}
}
