package builds

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/cloud/store/storetest"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestWhatIsKeptGoesWithTheCache checks that emptying the cache also drops the kept images, and
// that a step whose record cannot be deleted stays.
func TestWhatIsKeptGoesWithTheCache(t *testing.T) {
	t.Parallel()
	dropped := 0
	s := newWorld().serve(t, t.TempDir(), func(o *Options) {
		o.KeptImages = func() []layers.Use {
			return []layers.Use{{Name: "image", Layers: []string{"of-the-image"}, At: time.Now(), Drop: func() error { dropped++; return nil }}}
		}
	})
	s.built(t, "job", running("print one"))
	if space, err := s.Space(t.Context()); err != nil || space.Cache.Count != 2 {
		t.Errorf("got %+v and error %v, want a step and an image in the cache", space, err)
	}
	storetest.FailNth(s.store, 1)
	err := s.EmptyCache()
	storetest.Mend(s.store)
	if err == nil || s.options.Cache.count() != 1 || dropped != 1 {
		t.Errorf("with a broken disk: got error %v, %d steps and %d images dropped, want the step to stay", err, s.options.Cache.count(), dropped)
	}
	if err := s.EmptyCache(); err != nil || s.options.Cache.count() != 0 || dropped != 2 {
		t.Errorf("got error %v, %d steps and %d images dropped, want nothing to stay", err, s.options.Cache.count(), dropped)
	}
}

// TestDamagedUploads checks that an archive without a file, or with an unreadable record,
// must be uploaded again, and that nothing of it is left.
func TestDamagedUploads(t *testing.T) {
	t.Parallel()
	w, dir := newWorld(), t.TempDir()
	s := w.serve(t, dir)
	good, bare, garbage := strings.Repeat("1", 64), strings.Repeat("2", 64), strings.Repeat("3", 64)
	must.Do(t, s.Uploads().Add(good, strings.NewReader("x"), 1))
	for hash, value := range map[string]string{bare: `{"Size":1}`, garbage: "{"} {
		files := ""
		if hash == garbage {
			files = newFiles(t, s.store)
		}
		_, err := s.store.Put(store.Uploads, hash, []byte(value), files)
		must.Do(t, err)
	}
	s.kill(t)
	s = w.serve(t, dir)
	for hash, want := range map[string]bool{good: true, bare: false, garbage: false} {
		if s.Uploads().Has(hash) != want {
			t.Errorf("%.3s: want it to be there: %v", hash, want)
		}
	}
	is := storetest.Take(t, s.store, dir)
	if len(is.Records) != 1 || len(is.Unnamed) > 0 {
		t.Errorf("got %+v, want the good archive alone", is)
	}
}

// TestChangedBase checks that a build on a built-in template runs again when the contents of that
// template have changed. A build on another template built from it runs again only after that
// template was built again.
func TestChangedBase(t *testing.T) {
	t.Parallel()
	made := "1"
	s := newWorld().serve(t, t.TempDir(), func(o *Options) {
		o.Target = func(context.Context, engine.Name) (Target, error) {
			return Target{Base: func(context.Context) (string, error) { return made, nil }}, nil
		}
	})
	for _, tt := range []struct {
		made   string
		cached bool
	}{{"1", false}, {"1", true}, {"2", false}, {"1", true}} {
		made = tt.made
		if _, log := s.built(t, "job", running("print")); strings.Contains(log, "CACHED") != tt.cached {
			t.Errorf("made of %s: want it from the cache: %v\n%s", tt.made, tt.cached, log)
		}
	}
	for _, cached := range []bool{false, true} {
		made += "0"
		_, log := s.built(t, "child", Spec{FromTemplate: "job", Steps: running("print child").Steps})
		if strings.Contains(log, "CACHED") != cached {
			t.Errorf("from a template: want it from the cache: %v\n%s", cached, log)
		}
	}
}

// TestDirectoryOfTheUser checks that a build on a template with the directory guest.UserWorkdir
// gets the path of the user's home.
func TestDirectoryOfTheUser(t *testing.T) {
	t.Parallel()
	for from, want := range map[string]string{guest.UserWorkdir: guest.UserHome, "/srv": "/srv", "": ""} {
		s := newWorld().serve(t, t.TempDir())
		ref := templates.ParseReference("from")
		_, err := s.all.Add(&ref, templates.Build{Sandbox: "i1", Content: templates.Content{Workdir: from}})
		must.Do(t, err)
		build, _ := s.built(t, "job", Spec{FromTemplate: "from", Steps: slices.Clone(running("print").Steps)})
		if build.Workdir != want {
			t.Errorf("from %q: got %q, want %q", from, build.Workdir, want)
		}
	}
}
