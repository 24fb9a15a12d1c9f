package lifecycle_test

import (
	"errors"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestLoggedLife checks the lines that the operator of a server reads about the life of a sandbox, and
// about each operation that fails.
func TestLoggedLife(t *testing.T) {
	t.Parallel()
	v := serve(t, t.TempDir())
	id := v.create(t)
	failing := errors.New("broken")
	fails := func(op lifecycletest.Operation, do func() error) {
		t.Helper()
		v.fail(op, failing)
		if err := do(); !errors.Is(err, failing) {
			t.Errorf("%s: got error %v, want %v", op, err, failing)
		}
		v.fail(op, nil)
	}
	grow := func() error {
		return v.Resize(t.Context(), id, engine.Resources{CPUs: 2, MemoryBytes: 3, DiskBytes: 4})
	}
	snapshot := func() error {
		made, err := v.Snapshot(t.Context(), id, nil)
		if err == nil {
			v.layers.Release(made.Layers...)
		}
		return err
	}
	must.Do(t, grow())
	fails(lifecycletest.Resize, grow)
	must.Do(t, snapshot())
	v.fakes.SavesMemory = true
	must.Do(t, snapshot())
	v.fakes.SavesMemory = false
	fails(lifecycletest.Checkpoint, snapshot)
	fails(lifecycletest.Pause, func() error { return v.Pause(t.Context(), id, lifecycle.PauseOptions{}) })
	v.pause(t, id, lifecycle.PauseOptions{})
	fails(lifecycletest.Resume, func() error { _, err := v.Resume(t.Context(), id, day); return err })
	resume(t, v, id)
	v.pause(t, id, lifecycle.PauseOptions{DropMemory: true})
	resume(t, v, id)
	v.fail(lifecycletest.Close, failing)
	kill(t, v, id)
	v.fail(lifecycletest.Close, nil)
	lost := v.create(t)
	v.pause(t, lost, lifecycle.PauseOptions{})
	v.end(t)
	next := serve(t, v.dir)
	next.end(t)

	var got []string
	names := strings.NewReplacer(id, "one", lost, "lost")
	short := regexp.MustCompile(`^time=\S+ level=(\S+) msg="([^"]*)" sandbox=`)
	for line := range strings.Lines(v.log.String() + next.log.String()) {
		got = append(got, short.ReplaceAllString(names.Replace(strings.TrimSpace(line)), "$1 $2: sandbox="))
	}
	want := []string{
		"INFO sandbox created: sandbox=one template=base",
		"INFO sandbox resized: sandbox=one cpus=2 memory=3 disk=4",
		"WARN sandbox not resized: sandbox=one error=broken",
		"WARN snapshot of a sandbox: it has the files, and not the memory; what is made from it starts its processes anew: sandbox=one",
		"INFO snapshot of a sandbox, with its memory: sandbox=one",
		"WARN no snapshot of a sandbox: sandbox=one error=broken",
		"WARN sandbox not paused: sandbox=one error=broken",
		"INFO sandbox paused: sandbox=one memory=true",
		"ERROR sandbox not resumed: sandbox=one error=broken",
		"INFO sandbox resumed: sandbox=one memory=true",
		"INFO sandbox paused: sandbox=one memory=false",
		"INFO sandbox resumed: sandbox=one memory=false",
		"ERROR sandbox not closed cleanly: sandbox=one error=broken",
		`INFO sandbox ended: sandbox=one how="it was killed by request"`,
		"INFO sandbox created: sandbox=lost template=base",
		"INFO sandbox paused: sandbox=lost memory=true",
		`INFO sandbox ended: sandbox=lost how="the local cloud was closed"`,
		"WARN sandbox was paused with its memory, which ended with the local cloud: it can be resumed from its files: sandbox=lost",
	}
	if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestUnreadableRecordChangesNothing checks that a record which another server stored, and which this
// one cannot read, is logged and changes nothing. The same holds for the adoption of such a sandbox.
func TestUnreadableRecordChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log lockedBuffer
		c, f := &cluster{records: map[string]engine.Record{}}, &lifecycletest.Fakes{}
		r := c.registry(t, func(o *lifecycle.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		defer end(t, r)
		sb := create(t, r, time.Hour)
		seen, err := f.Launch(t.Context(), lifecycle.Spec{ID: sb.ID})
		must.Do(t, err)
		other := c.see(sb.ID, seen)
		good, _ := other.Kept()
		bad := engine.Record{StartedAt: time.Now(), EndAt: time.Now().Add(time.Minute), Sealed: []byte("{}")}
		must.Do(t, other.Keep(t.Context(), bad))
		synctest.Wait()
		if got, err := r.Get(sb.ID); err != nil || !got.EndAt.Equal(sb.EndAt) || !got.StartedAt.Equal(sb.StartedAt) {
			t.Errorf("got %+v and error %v, want %+v", got, err, sb)
		}
		if lines := log.String(); !strings.Contains(lines, `level=WARN msg="the record of a sandbox cannot be read" sandbox=`+sb.ID) || !strings.Contains(lines, "its version is 0") {
			t.Errorf("the log has %q", lines)
		}
		must.Do(t, other.Keep(t.Context(), good))
		must.Do(t, other.Fake.Close())
		synctest.Wait()
		next := c.registry(t, func(o *lifecycle.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		defer end(t, next)
		if lines := log.String(); !strings.Contains(lines, `level=INFO msg="sandbox of another server adopted" sandbox=`+sb.ID+" template=base") {
			t.Errorf("the log has %q", lines)
		}
		must.Do(t, r.Kill(sb.ID))
	})
}
