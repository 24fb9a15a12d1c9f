package builds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/image"
	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/cloud/store/storetest"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestUploadFails makes each change of the disk fail while an archive is added and dropped. The archive
// from before stays, or the new one is there, and nothing else is left.
func TestUploadFails(t *testing.T) {
	t.Parallel()
	hash := strings.Repeat("1", 64)
	for what, do := range map[string]func(u *Uploads) error{
		"add":     func(u *Uploads) error { return u.Add(hash, strings.NewReader("other"), 5) },
		"drop":    func(u *Uploads) error { return u.drop(hash) },
		"content": func(u *Uploads) error { return u.Add(hash, io.MultiReader(strings.NewReader("o"), broken{}), 5) },
	} {
		for n := 1; ; n++ {
			w, dir := newWorld(), t.TempDir()
			s := w.serve(t, dir)
			must.Do(t, s.Uploads().Add(hash, strings.NewReader("first"), 5))
			fault := storetest.FailNth(s.store, n)
			err := do(s.Uploads())
			storetest.Mend(s.store)
			if known := errors.Is(err, storetest.ErrFault) && fault.Which() != "" || errors.Is(err, errBroken) && what == "content"; known != (err != nil) || err == nil && what == "content" {
				t.Errorf("%s at %q: got %v", what, fault.Which(), err)
			}
			if unnamed := storetest.Take(t, s.store, dir).Unnamed; len(unnamed) > 0 && fault.Which() != store.Rename { // the next start removes what cannot be moved
				t.Errorf("%s at %q: left %q", what, fault.Which(), unnamed)
			}
			want := map[string]string{"add": "other", "drop": "", "content": "first"}[what]
			if err != nil {
				want = "first"
			}
			for _, when := range []string{"at once", "after a restart"} {
				got := ""
				if file, _, err := s.Uploads().open(hash); err == nil {
					text, err := io.ReadAll(file)
					must.Do(t, errors.Join(err, file.Close()))
					got = string(text)
				}
				if s.Uploads().Has(hash) != (want != "") || got != want {
					t.Errorf("%s at %q, %s: got %q, want %q", what, fault.Which(), when, got, want)
				}
				if when == "at once" {
					s.kill(t)
					s = w.serve(t, dir)
				}
			}
			if fault.Which() == "" {
				break
			}
		}
	}
}

// TestStoreIsUnreadable checks that a server whose store cannot be read begins with nothing, and says so.
func TestStoreIsUnreadable(t *testing.T) {
	t.Parallel()
	st, err := store.Open(t.Context(), t.TempDir())
	must.Do(t, err)
	set := layers.Open(layers.Options{Store: st})
	must.Do(t, st.Close())
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	if got := OpenCache(st, set, logger); len(got.entries) > 0 {
		t.Errorf("got the entries %v", got.entries)
	}
	if got := OpenUploads(st, logger); got.Has("any") {
		t.Errorf("got the archives %v", got.entries)
	}
	if got := log.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "steps of builds that cannot be read") || !strings.Contains(got, "archives that cannot be read") {
		t.Errorf("got the log %s", got)
	}
}

// TestEndWhileWaiting checks that a build that waits for others ends with the server.
func TestEndWhileWaiting(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s := w.serve(t, t.TempDir())
	for i := range maxRunning {
		s.begin(t, s.request(t, fmt.Sprintf("job%d", i)), "block")
	}
	for range maxRunning {
		patience.Receive(t, "a build that runs", w.blocked)
	}
	id := s.request(t, "other")
	s.begin(t, id, "print one")
	patience.Until(t, "the build waits", func() bool {
		_, log := s.now(t, id)
		return strings.Contains(log, "Waiting for other builds")
	})
	s.Close()
	// The others end, too, so that it may get as far as its first step.
	if status, log := s.end(t, id); status.Status != templates.Failed || !strings.HasSuffix(log, "Build failed: "+errEnded.Error()+"\n") {
		t.Errorf("got %v and the log\n%s", status.Status, log)
	}
}

var errBroken = errors.New("the connection is broken")

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errBroken }

// TestRoomFails checks that calls that measure or make room return the errors of their parts, and drop
// nothing else after an error.
func TestRoomFails(t *testing.T) {
	t.Parallel()
	dropped := 0
	s := newWorld().serve(t, t.TempDir(), func(o *Options) {
		o.Cap, o.ImageCap = 1, 1
		o.KeptImages = func() []layers.Use {
			return []layers.Use{{Name: "image", Layers: []string{"a"}, Drop: func() error { dropped++; return errBroken }}, {Name: "other", Layers: []string{"b"}, Drop: func() error { dropped++; return errBroken }}}
		}
	})
	must.Is(t, s.MakeRoom(t.Context(), 2), errBroken)
	if dropped != 1 {
		t.Errorf("%d images were dropped, want one", dropped)
	}
	dir, err := s.store.NewDir()
	must.Do(t, err)
	must.Do(t, os.WriteFile(filepath.Join(dir, "files"), make([]byte, 1<<20), 0o600))
	_, err = s.store.Put(store.Layers, "a", nil, dir)
	must.Do(t, err)
	must.Is(t, s.trimImages(t.Context(), "other"), errBroken)
	if dropped != 2 {
		t.Errorf("%d images were dropped, want two", dropped)
	}
	_, err = s.store.Put(store.Layers, "b", nil, newFiles(t, s.store))
	must.Do(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Space(ended)
	must.Is(t, err, context.Canceled)
	must.Is(t, s.MakeRoom(ended, 0), context.Canceled)
	must.Is(t, s.trimImages(ended, ""), context.Canceled)
	s.options.ImageCap = 0
	must.Do(t, s.trimImages(ended, ""))
}

// newFiles returns a new directory of a store.
func newFiles(t *testing.T, s *store.Store) string {
	t.Helper()
	dir, err := s.NewDir()
	must.Do(t, err)
	return dir
}

// TestCacheFails checks that a result that cannot be stored is an error, and that the result from before
// stays. That each layer has the right holders is checked after each test.
func TestCacheFails(t *testing.T) {
	t.Parallel()
	s, images := newWorld().withImages(t, map[string]image.Image{"python:3": {Digest: "sha256:1"}})
	broken := func(want int, do func() error) {
		t.Helper()
		storetest.FailNth(s.store, 1)
		err := do()
		storetest.Mend(s.store)
		if got := s.options.Cache.count(); !errors.Is(err, storetest.ErrFault) || got != want {
			t.Errorf("got error %v and %d results, want %v and %d", err, got, storetest.ErrFault, want)
		}
	}
	put := func(user string) error { return s.options.Cache.put("step", templates.Content{User: user}) }
	broken(0, func() error { return put("first") })
	must.Do(t, put("first"))
	broken(1, func() error { return put("second") })
	if got, ok := s.options.Cache.get("step"); !ok || got.User != "first" {
		t.Errorf("got %+v and %v, want the first result", got, ok)
	}
	broken(1, func() error { return s.options.Cache.drop("step") })
	must.Do(t, s.options.Cache.drop("step"))
	must.Do(t, s.options.Cache.drop("step")) // there is none
	must.Is(t, s.options.Cache.put("step", templates.Content{Layers: []string{"none"}}), layers.ErrGone)
	if got := s.options.Cache.count(); got != 0 {
		t.Errorf("got %d results, want none whose layers are gone", got)
	}
	content, err := s.FromImage(t.Context(), "", "python:3")
	must.Do(t, err)
	s.Release(content)
	s.options.Cache.passed(lookUpAfter)
	images.fails = &transport.Error{StatusCode: http.StatusServiceUnavailable}
	broken(1, func() error { _, err := s.FromImage(t.Context(), "", "python:3"); return err })
}

// TestBaseGoesAway checks that a build fails if its base is deleted while the build begins.
func TestBaseGoesAway(t *testing.T) {
	t.Parallel()
	meanwhile := func() {}
	s := newWorld().serve(t, t.TempDir(), func(o *Options) {
		o.Target = func(context.Context, engine.Name) (Target, error) { meanwhile(); return Target{}, nil }
	})
	s.built(t, "from", running("print"))
	id := s.request(t, "job")
	meanwhile = func() {
		deleted := s.all.Delete(templates.ParseReference("from"), func(string) bool { return false })
		if err := errors.Join(deleted, s.EmptyCache()); err != nil {
			t.Error(err)
		}
		meanwhile = func() {}
	}
	must.Do(t, s.Start(id.template, id.build, Spec{FromTemplate: "from"}))
	if status, _ := s.end(t, id); status.Failure == nil || status.Failure.Step != stepBase || !strings.HasPrefix(status.Failure.Message, layers.ErrGone.Error()) {
		t.Errorf("got %s %+v, want %v", status.Status, status.Failure, layers.ErrGone)
	}
}
