package builds

import (
	"bytes"
	"slices"
	"strings"
	"testing"

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
