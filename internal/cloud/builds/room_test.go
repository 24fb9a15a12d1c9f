package builds

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestUseKeeps checks that recently used steps and archives stay longest, and that reading a step
// or an archive counts as use.
func TestUseKeeps(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s := w.serve(t, t.TempDir())
	one, two := strings.Repeat("1", 64), strings.Repeat("2", 64)
	for _, hash := range []string{one, two} {
		must.Do(t, s.Uploads().Add(hash, strings.NewReader("x"), 1))
		must.Do(t, s.options.Cache.put(hash, templates.Content{}))
	}
	oldest := func(all []layers.Use) string {
		return slices.MinFunc(all, func(x, y layers.Use) int { return x.At.Compare(y.At) }).Name
	}
	if got := oldest(s.uploads.uses()); got != one {
		t.Errorf("of the archives %s is the oldest, want the first", got)
	}
	file, _, err := s.uploads.open(one)
	must.Do(t, err)
	if err := file.Close(); err != nil {
		t.Error(err)
	}
	if got := oldest(s.uploads.uses()); got != two {
		t.Errorf("of the archives %s is the oldest, want the one that was not opened", got)
	}
	if _, ok := s.options.Cache.get(one); !ok {
		t.Error("the first step is not there")
	}
	if got := oldest(s.options.Cache.uses()); got != two {
		t.Errorf("of the steps %s is the oldest, want the one that was not used", got)
	}
}

// TestNeededArchivesStay checks that archives of an unfinished build stay, for every function that
// makes room.
func TestNeededArchivesStay(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s := w.serve(t, t.TempDir())
	needed, other := strings.Repeat("1", 64), strings.Repeat("2", 64)
	add := func() {
		t.Helper()
		for _, hash := range []string{needed, other} {
			must.Do(t, s.Uploads().Add(hash, bytes.NewReader(make([]byte, 1<<10)), 1<<10))
		}
	}
	id := s.request(t, "job")
	spec := running("block")
	spec.Steps = append(spec.Steps, Step{Type: "COPY", Args: []string{"a", "b", "", ""}, FilesHash: needed})
	add()
	must.Do(t, s.Start(id.template, id.build, spec))
	patience.Receive(t, "a step that blocks", w.blocked)
	beside := s.request(t, "other") // ends before the first, and copies from the same archive
	must.Do(t, s.Start(beside.template, beside.build, Spec{FromImage: "e2bdev/base", Steps: spec.Steps[1:]}))
	<-s.jobs[beside.build].ended
	for how, empty := range map[string]func() error{
		"emptied": s.EmptyCache,
		"full":    func() error { _ = s.MakeRoom(t.Context(), s.options.Cap); return nil }, // there is no room for so many bytes
	} {
		add()
		if err := empty(); err != nil || !s.Uploads().Has(needed) || s.Uploads().Has(other) {
			t.Errorf("%s: got error %v, want only the archive that is needed", how, err)
		}
	}
	close(w.block)
	if status, log := s.end(t, id); status.Status != templates.Ready {
		t.Errorf("got %s, want ready:\n%s", status.Status, log)
	}
	if err := s.EmptyCache(); err != nil || s.Uploads().Has(needed) {
		t.Errorf("got error %v, want nothing after the build", err)
	}
}

// TestRoomByTheByte checks that nothing is removed before the last byte is used.
func TestRoomByTheByte(t *testing.T) {
	t.Parallel()
	const size = 1 << 10
	for more, want := range map[int64]bool{-1: true, 0: true, 1: false} {
		s := newWorld().serve(t, t.TempDir(), func(o *Options) { o.Cap = 4 * size })
		hash := strings.Repeat("1", 64)
		must.Do(t, s.Uploads().Add(hash, bytes.NewReader(make([]byte, size)), size))
		space, err := s.Space(t.Context())
		must.Do(t, err)
		if err := s.MakeRoom(t.Context(), space.Cap-space.Bytes+more); err != nil || s.Uploads().Has(hash) != want {
			t.Errorf("%d bytes beyond what is free: got error %v, want the archive to stay: %v", more, err, want)
		}
	}
}

// TestNothingIsSavedWithoutRoom checks that nothing is saved if there is no room for
// it.
func TestNothingIsSavedWithoutRoom(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.size = 1 << 20
	s := w.serve(t, t.TempDir(), func(o *Options) { o.Cap = 1 << 19 })
	for range 2 { // with the results of the first, and without
		id := s.request(t, "job")
		s.begin(t, id, "print")
		if status, _ := s.end(t, id); status.Failure == nil || !strings.HasPrefix(status.Failure.Message, "no space: ") {
			t.Errorf("got %+v, want no space", status.Failure)
		}
	}
	if n := s.kept(t); n != 0 {
		t.Errorf("%d layers are left", n)
	}
	full := w.serve(t, t.TempDir(), func(o *Options) { o.Cap = 3 << 19 })
	full.built(t, "kept", running("print one"))
	w.saved = 0
	full.options.Cap = 1 << 19 // an operator may reduce it
	id := full.request(t, "job")
	full.begin(t, id, "print two")
	if status, _ := full.end(t, id); status.Failure == nil || w.saved != 0 {
		t.Errorf("got %s and %d things saved, want a failure before that", status.Status, w.saved)
	}
}

// TestTheOldestMakeRoom checks that steps, images and archives are dropped by the time of their last use, no
// more of them than needed, and none whose layers a template keeps.
func TestTheOldestMakeRoom(t *testing.T) {
	t.Parallel()
	s := newWorld().serve(t, t.TempDir())
	id, err := s.layers.Add(func(dir string, share bool) (bool, error) { return share, nil })
	must.Do(t, err)
	of := templates.ParseReference("job")
	_, err = s.all.Add(&of, templates.Build{Sandbox: "i1", Content: templates.Content{Layers: []string{id}}})
	must.Do(t, err)
	must.Do(t, s.options.Cache.put("kept", templates.Content{Layers: []string{id}}))
	var dropped []string
	use := func(name string, at int64) layers.Use {
		return layers.Use{Name: name, At: time.Unix(at, 0), Layers: []string{"of " + name}, Drop: func() error { dropped = append(dropped, name); return nil }}
	}
	s.options.KeptImages = func() []layers.Use { return []layers.Use{use("fourth", 4), use("second", 2)} }
	first, third, fifth := strings.Repeat("1", 64), strings.Repeat("3", 64), strings.Repeat("5", 64)
	for i, hash := range []string{first, third, fifth} {
		must.Do(t, s.Uploads().Add(hash, bytes.NewReader(make([]byte, 1<<10)), 1<<10))
		s.uploads.entries[hash].Used = time.Unix(int64(2*i+1), 0)
	}
	var names []string
	for _, one := range s.droppable() {
		names = append(names, one.Name)
	}
	if diff := cmp.Diff([]string{first, "second", third, "fourth", fifth}, names); diff != "" {
		t.Errorf("the order (-want +got):\n%s", diff)
	}
	space, err := s.Space(t.Context())
	must.Do(t, err)
	must.Do(t, s.MakeRoom(t.Context(), space.Cap-space.Bytes+2<<10)) // as much as two archives
	if left := s.uploads.sizes(); len(left) != 1 || left[fifth] == 0 || !slices.Equal(dropped, []string{"second"}) {
		t.Errorf("got the archives %v left and %q dropped, want the last archive and only the second", left, dropped)
	}
}

// TestArchivesOfStages checks that a build needs the archives of its stages, too.
func TestArchivesOfStages(t *testing.T) {
	t.Parallel()
	from := func(hashes ...string) (all []Step) {
		for _, hash := range hashes {
			all = append(all, Step{FilesHash: hash})
		}
		return all
	}
	spec := Spec{Stages: []Stage{{Steps: from("1", "2")}, {}, {Steps: from("3")}}, Steps: from("4", "5")}
	if diff := cmp.Diff(from("4", "5", "1", "2", "3"), spec.All()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
