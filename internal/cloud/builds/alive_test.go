package builds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/image"
	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
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

// soon runs f, which must end long before ctx does. It reports whether f did.
func soon(t *testing.T, f func(ctx context.Context)) bool {
	t.Helper()
	ctx := patience.Context(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f(ctx)
	}()
	select {
	case <-ended:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// TestLocksAreReleased checks that no call keeps a lock of the builder, of the archives or of a log. It
// runs before the tests that would wait.
func TestLocksAreReleased(t *testing.T) { //nolint:paralleltest // see above
	s, _ := newWorld().withImages(t, map[string]image.Image{"python:3": {Digest: "sha256:1"}})
	u, l, hash := s.Uploads(), &Log{}, strings.Repeat("1", 64)
	from := func() (err error) {
		if !soon(t, func(ctx context.Context) {
			content, failed := s.FromImage(ctx, "", "python:3")
			s.Release(content)
			err = failed
		}) {
			t.Error("an image is waited for")
		}
		return err
	}
	full := func() {
		s.options.Cache.passed(lookUpAfter)
		for i := range MaxActive {
			s.fetches[fmt.Sprint(i)] = &fetch{}
		}
		must.Is(t, from(), ErrFetches)
		clear(s.fetches)
	}
	var id ids
	for _, call := range []struct {
		name string
		mu   *sync.Mutex
		do   func()
	}{
		{"output", &l.mu, func() { l.output(slog.LevelInfo, "1", "line") }},
		{"add", &l.mu, func() { l.add(slog.LevelInfo, "1", "line") }},
		{"Lines", &l.mu, func() { l.Lines(Select{}) }},
		{"tail", &l.mu, func() { l.tail("1") }},
		{"size", &l.mu, func() { l.size() }},
		{"Add", &u.mu, func() { must.Do(t, u.Add(hash, strings.NewReader("x"), 1)) }},
		{"Has", &u.mu, func() { u.Has(hash) }},
		{"sizes", &u.mu, func() { u.sizes() }},
		{"uses", &u.mu, func() { u.uses() }},
		{"open", &u.mu, func() { _, _, err := u.open("none"); must.Is(t, err, os.ErrNotExist) }},
		{"drop", &u.mu, func() { must.Do(t, u.drop(hash)) }},
		{"Request", &s.mu, func() { id = s.request(t, "job") }},
		{"Status", &s.mu, func() { s.Status(id.template, id.build) }},
		{"a refused Start", &s.mu, func() { _ = s.Start("none", "none", Spec{}) }},
		{"Drop", &s.mu, func() { s.Drop("none") }},
		{"needed", &s.mu, func() { s.needed() }},
		{"FromImage", &s.mu, func() { must.Do(t, from()) }},
		{"FromImage with too many others", &s.mu, full},
		{"a build", &s.mu, func() {
			s.begin(t, id)
			if s.work.Wait(); s.jobs[id.build].cancel == nil {
				t.Error("a build cannot be cancelled")
				s.jobs[id.build].cancel = func(error) {}
			}
		}},
		{"Close", &s.mu, s.Close},
		{"FromImage after the end", &s.mu, func() { must.Is(t, from(), ErrClosed) }},
	} {
		call.do()
		if !call.mu.TryLock() {
			t.Errorf("%s keeps the lock", call.name)
		}
		call.mu.Unlock()
	}
	select {
	case <-s.jobs[id.build].ended:
	default:
		t.Error("a build has not ended for those that wait for it")
	}
}

// TestCommandsAreNotWaitedFor checks when the commands of a template are ended: a start command once the
// template is ready, and a ready command that only sleeps once the start command has ended. It runs before
// the tests that would wait.
func TestCommandsAreNotWaitedFor(t *testing.T) { //nolint:paralleltest // see above
	s := newWorld().serve(t, t.TempDir())
	for _, content := range []templates.Content{{Start: "sleep", Ready: "print"}, {Start: "print", Ready: "sleep 20"}, {Start: "print"}, {Ready: "print"}} {
		r := &run{Builder: s.Builder, job: &job{log: &Log{}}, made: map[string]bool{}, state: content}
		var err error
		if !soon(t, func(ctx context.Context) { err = r.finalize(ctx) }) || err != nil {
			t.Fatalf("%q and %q: got error %v, want that they end at once", content.Start, content.Ready, err)
		}
		r.close()
	}
	r := &run{Builder: s.Builder, job: &job{log: &Log{}}, made: map[string]bool{}, state: templates.Content{Start: "fail", Ready: "sleep 20"}}
	var err error
	if !soon(t, func(ctx context.Context) { err = r.finalize(ctx) }) || err == nil {
		t.Fatalf("got error %v, want at once that the start command failed", err)
	}
	r.close()
}

// TestCloseWaitsForNothing checks that builds of different tags and templates run side by side, and that Close
// ends builds whose command does not end, and a fetch that gets no answer. It runs before the tests that would
// wait for them.
func TestCloseWaitsForNothing(t *testing.T) { //nolint:paralleltest // see above
	w := newWorld()
	s, images := w.withImages(t, map[string]image.Image{"python:3": {Digest: "sha256:1"}})
	images.stop = make(chan struct{})
	id := s.request(t, "job", "a")
	for _, one := range []ids{id, s.request(t, "job", "b"), s.request(t, "other", "a")} {
		s.begin(t, one, "block")
		if !soon(t, func(ctx context.Context) {
			select {
			case <-w.blocked:
			case <-ctx.Done():
			}
		}) {
			t.Errorf("build %s waits for a build of another tag or template", one.build)
		}
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	_, err := s.FromImage(gone, "", "python:3")
	must.Is(t, err, context.Canceled)
	if !soon(t, func(context.Context) { s.Close() }) {
		t.Error("Close waits for a build or a fetch")
		close(w.block)
		close(images.stop)
	}
	if status, log := s.end(t, id); status.Failure == nil || status.Failure.Message != errEnded.Error() {
		t.Errorf("got %s %+v, want %v:\n%s", status.Status, status.Failure, errEnded, log)
	}
}
