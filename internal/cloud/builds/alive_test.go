package builds

import (
	"errors"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestNothingIsWaitedFor checks what makes builds wait forever if it is wrong: a lock that a call of the
// cache keeps, an image that is built in and is fetched all the same, and a sandbox without its layers. It
// runs before the tests that would wait.
func TestNothingIsWaitedFor(t *testing.T) { //nolint:paralleltest // see above
	s := newWorld().serve(t, t.TempDir())
	cache := s.options.Cache
	for name, call := range map[string]func() error{
		"get":      func() error { cache.get("none"); return nil },
		"put":      func() error { return cache.put("a", templates.Content{User: "me"}) },
		"getNewer": func() error { cache.getNewer("a", time.Now()); return nil },
		"uses":     func() error { cache.uses(); return nil },
		"held":     func() error { cache.held(); return nil },
		"count":    func() error { cache.count(); return nil },
		"drop":     func() error { return cache.drop("none") },
	} {
		must.Do(t, call())
		if !cache.mu.TryLock() {
			t.Fatalf("%s keeps the lock of the cache", name)
		}
		cache.mu.Unlock()
	}
	cache.split()
	if !cache.mu.TryLock() {
		t.Fatal("split keeps the lock of the cache")
	}
	cache.mu.Unlock()
	must.Do(t, cache.drop("a"))

	r := &run{Builder: s.Builder, job: &job{log: &Log{}}, step: stepBase}
	for _, from := range []string{"e2bdev/base", "e2bdev/base:latest", "docker.io/e2bdev/code-interpreter"} {
		if err := r.base(t.Context(), Spec{FromImage: from}); err != nil || r.key == "" {
			t.Fatalf("%s: got the key %q and error %v, want the built-in template", from, r.key, err)
		}
	}
	begun, err := r.launch(t.Context(), templates.Content{Layers: []string{"none"}}, "")
	if !errors.Is(err, layers.ErrGone) || begun != nil {
		t.Errorf("a sandbox without its layers: got %v and error %v, want ErrGone", begun, err)
	}
}
