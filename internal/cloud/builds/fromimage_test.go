package builds

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"golang.org/x/sync/errgroup"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/image"
	"github.com/e2bctl/e2bctl/internal/must"
)

// passed makes the cache's images older.
func (c *Cache) passed(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, entry := range c.entries {
		entry.LookedUp = entry.LookedUp.Add(-d)
	}
}

// TestTagsOfSandboxes checks when the image of a tag is looked up again, with a registry that
// answers, does not answer, or refuses.
func TestTagsOfSandboxes(t *testing.T) {
	t.Parallel()
	s, images := newWorld().withImages(t, map[string]image.Image{"python:3": {Digest: "sha256:1"}, "python@sha256:1": {Digest: "sha256:1"}, "oci:/dir": {Digest: "sha256:1"}})
	from := func(reference, digest string, pulls int, want error) {
		t.Helper()
		before := len(images.logins)
		content, err := s.FromImage(t.Context(), "", reference)
		if !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", reference, err, want)
		}
		if asked := len(images.logins) - before; asked != pulls {
			t.Errorf("%s: the registry was asked %d times, want %d", reference, asked, pulls)
		}
		if err != nil {
			return
		}
		if content.Image.Digest != digest || content.Image.Reference != strings.TrimSpace(reference) {
			t.Errorf("%s: got %+v, want the digest %s", reference, content.Image, digest)
		}
		s.Release(content)
	}
	unreached := &net.OpError{Op: "dial", Err: errors.New("no route")}
	refused := &transport.Error{StatusCode: http.StatusNotFound}
	limited := &transport.Error{StatusCode: http.StatusTooManyRequests}

	errDamaged := errors.New("its digest is another one")
	images.fails = unreached
	from("python:3", "", 1, unreached)
	images.fails = nil
	from("python:3", "sha256:1", 1, nil)
	from(" python:3 ", "sha256:1", 0, nil)
	from("python@sha256:1", "sha256:1", 1, nil)
	images.all["python:3"] = image.Image{Digest: "sha256:2"}
	s.options.Cache.passed(lookUpAfter - time.Minute)
	from("python:3", "sha256:1", 0, nil)
	s.options.Cache.passed(time.Minute)
	images.fails = unreached
	from("python:3", "sha256:1", 1, nil)
	images.fails = limited
	from("python:3", "sha256:1", 0, nil)
	s.options.Cache.passed(lookUpPause)
	from("python:3", "sha256:1", 1, nil)
	images.fails = nil
	from("python:3", "sha256:1", 0, nil)
	s.options.Cache.passed(lookUpPause)
	from("python:3", "sha256:2", 1, nil)
	from("python@sha256:1", "sha256:1", 0, nil)
	s.options.Cache.passed(lookUpAfter)
	images.fails = refused
	from("python:3", "", 1, refused)
	images.fails = nil
	from("oci:/dir", "sha256:1", 1, nil)
	images.all["oci:/dir"] = image.Image{Digest: "sha256:2"}
	from("oci:/dir", "sha256:2", 1, nil)
	images.fails = errDamaged
	from("oci:/dir", "", 1, errDamaged)

}

// TestImagesAreBounded checks that the least recently used images are dropped, and never one that a
// template needs.
func TestImagesAreBounded(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	all := map[string]image.Image{}
	for _, name := range []string{"a", "b", "c", "d"} {
		all[name] = image.Image{Digest: "sha256:" + name}
	}
	images := &fakeImages{all: all, size: size}
	s := newWorld().serve(t, t.TempDir(), func(o *Options) {
		images.layers = o.Layers
		o.ImageCap = 5 * size / 2
		o.Target = func(context.Context, engine.Name) (Target, error) { return Target{Images: images}, nil }
	})
	s.built(t, "made", Spec{FromImage: "d"})
	for _, use := range []struct {
		name string
		want bool // the image is fetched
	}{{"a", true}, {"b", true}, {"a", false}, {"c", true}, {"a", false}, {"b", true}, {"a", false}, {"c", true}} {
		before := len(images.logins)
		content, err := s.FromImage(t.Context(), "", use.name)
		must.Do(t, err)
		s.Release(content)
		if fetched := len(images.logins) > before; fetched != use.want {
			t.Errorf("%s was fetched: %v, want %v", use.name, fetched, use.want)
		}
	}
	space, err := s.Space(t.Context())
	must.Do(t, err)
	if space.Bytes < 3*size || space.Bytes > 4*size {
		t.Errorf("layers have %d bytes, want those of two images and a template", space.Bytes)
	}
}

// TestFetchesAreShared checks that calls for one image share a fetch, that it goes on without
// them, and that their number is bounded.
func TestFetchesAreShared(t *testing.T) {
	t.Parallel()
	s, images := newWorld().withImages(t, map[string]image.Image{"python:3": {Digest: "sha256:1"}})
	images.stop = make(chan struct{})
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := s.FromImage(gone, "", "python:3"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	var group errgroup.Group
	for range 30 {
		group.Go(func() error {
			content, err := s.FromImage(t.Context(), "", "python:3")
			s.Release(content)
			return err
		})
	}
	for i := range MaxActive - 1 {
		_, err := s.FromImage(gone, "", "other:"+string(rune('a'+i)))
		must.Is(t, err, context.Canceled)
	}
	_, err := s.FromImage(gone, "", "other")
	must.Is(t, err, ErrFetches)
	_, err = s.FromImage(gone, "", "python:3") // shares a fetch
	must.Is(t, err, context.Canceled)
	close(images.stop)
	must.Do(t, group.Wait())
	s.work.Wait()
	if first := images.logins[:1]; len(images.logins) != MaxActive || first[0] != nil {
		t.Errorf("%d fetches, want %d", len(images.logins), MaxActive)
	}
}
