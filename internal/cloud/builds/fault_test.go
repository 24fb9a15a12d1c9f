package builds

import (
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/cloud/store/storetest"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
)

// TestDiskFails makes the disk fail at each change of a build. A failed build adds nothing to its
// template, adds only cached steps to the layers and files, and leaves nothing running. The same
// build succeeds when the disk works again, and the next server has its result.
func TestDiskFails(t *testing.T) {
	t.Parallel()
	failed := 0
	for n := 1; ; n++ {
		w := newWorld()
		dir := t.TempDir()
		s := w.serve(t, dir)
		id := s.request(t, "job", "v1")
		fault := storetest.FailNth(s.store, n)
		err := s.Start(id.template, id.build, running("print one", "print two"))
		s.work.Wait()
		storetest.Mend(s.store)
		status, ok := s.Status(id.template, id.build)
		switch {
		case fault.Which() == "" && (err != nil || status.Status != templates.Ready):
			t.Errorf("without a fault: got %v and error %v, want ready", status, err)
		case err == nil && status.Status == templates.Ready && fault.Which() != "":
			if _, log := s.now(t, id); !strings.Contains(log, "WARN what the step led to cannot be kept in the cache: ") {
				t.Errorf("at %q: got the log\n%s", fault.Which(), log)
			}
		case err == nil && status.Status == templates.Failed:
			failed++
			if !strings.Contains(status.Failure.Message, storetest.ErrFault.Error()) {
				t.Errorf("at %q: got %+v, want the error of the disk", fault.Which(), status.Failure)
			}
			if _, _, err := s.all.Find(templates.ParseReference("job:v1")); err == nil {
				t.Errorf("at %q: found a build that failed", fault.Which())
			}
		case err != nil && (!ok || status.Status != templates.Waiting):
			t.Errorf("at %q: not begun, with error %v: got %v, want it to wait", fault.Which(), err, status.Status)
		}
		is := storetest.Take(t, s.store, dir)
		if w.running != 0 || fault.Which() != store.Rename && len(is.Unnamed) > 0 {
			t.Errorf("at %q: %d sandboxes run, and %q are left", fault.Which(), w.running, is.Unnamed)
		}
		again := s.request(t, "job", "v1")
		s.begin(t, again, "print one", "print two")
		if status, log := s.end(t, again); status.Status != templates.Ready {
			t.Errorf("after %q, again: got %v, want ready:\n%s", fault.Which(), status.Status, log)
		}
		if err := s.EmptyCache(); err != nil {
			t.Error(err)
		}
		named := map[string]bool{}
		made, _, err := s.all.Find(templates.ParseReference("job:v1"))
		for _, build := range made.Builds {
			for _, layer := range build.Layers {
				named[layer] = true
			}
		}
		if n := s.kept(t); err != nil || fault.Which() != store.DeleteRecord && n != len(named) {
			t.Errorf("after %q there are %d layers without the cache (%v), want the %d of the template", fault.Which(), n, err, len(named))
		}
		s.kill(t)
		next := w.serve(t, dir)
		next.layers.Sweep()
		if _, build, err := next.all.Find(templates.ParseReference("job:v1")); err != nil || build.ID != again.build {
			t.Errorf("after %q the next server has %v and error %v, want the second build", fault.Which(), build.ID, err)
		}
		if unnamed := storetest.Take(t, next.store, dir).Unnamed; len(unnamed) > 0 {
			t.Errorf("after %q the next server has %q", fault.Which(), unnamed)
		}
		if layers, want := next.kept(t), 2; layers > want {
			t.Errorf("after %q the next server has %d layers, want at most the %d of the steps", fault.Which(), layers, want)
		}
		if fault.Which() == "" {
			break
		}
	}
	if failed == 0 {
		t.Error("no build failed")
	}
}
