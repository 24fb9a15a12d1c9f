//go:build linux

package cloud

import (
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestSnapshotAfterRestart checks that a snapshot outlives its cloud, and that deleting the
// snapshot removes its files.
func TestSnapshotAfterRestart(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	files := func() []string {
		t.Helper()
		all, err := filepath.Glob(filepath.Join(state, "files", "*"))
		must.Do(t, err)
		return all
	}
	first, before := startFake(t, Options{State: state})
	before.lacks = engine.Promises{engine.SavedMemory: "it forgets"}
	source := create(t, first, `{"templateID":"base"}`)
	if status, text := do(t, first, "POST", "/sandboxes/"+source+"/snapshots", `{"name":"job"}`); status != http.StatusCreated {
		t.Fatalf("got %d %s, want 201", status, text)
	}
	if status, text := do(t, first, "POST", "/sandboxes/"+source+"/fork", `{"count":3}`); status != http.StatusCreated || strings.Contains(text, "error") {
		t.Fatalf("got %d %s, want three children", status, text)
	}
	if got := files(); len(got) != 1 {
		t.Errorf("got %q, want the files of the snapshot only", got)
	}
	must.Do(t, first.Close())

	second, fake := startFake(t, Options{State: state})
	status, text := do(t, second, "GET", "/snapshots?sandboxID="+source, "")
	if status != http.StatusOK || !strings.Contains(text, "local/job:default") {
		t.Errorf("got %d %s, want the snapshot", status, text)
	}
	child := create(t, second, `{"templateID":"job"}`)
	if got := files(); len(got) != 1 || fake.boxes[child].options.Files != got[0] {
		t.Errorf("it began with %s, want the one of %q", fake.boxes[child].options.Files, got)
	}
	for _, path := range []string{"/sandboxes/" + child, "/templates/job"} {
		if status, text := do(t, second, "DELETE", path, ""); status != http.StatusNoContent {
			t.Errorf("%s: got %d %s, want 204", path, status, text)
		}
	}
	if got := files(); len(got) != 0 {
		t.Errorf("after the snapshot was deleted: got %q, want no files", got)
	}
}

// TestSnapshotFails checks that a sandbox that cannot be stopped or saved continues to run, and
// that a sandbox that cannot continue ends.
func TestSnapshotFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("it is broken")
	for name, tt := range map[string]struct {
		set  func(sb *fakeSandbox)
		want int // status of the answer to the snapshot
		then int // status of the answer to GET afterwards
	}{
		"hold":          {func(sb *fakeSandbox) { sb.fails.hold = broken }, http.StatusInternalServerError, http.StatusOK},
		"memory":        {func(sb *fakeSandbox) { sb.fails.memory = broken }, http.StatusInternalServerError, http.StatusOK},
		"save":          {func(sb *fakeSandbox) { sb.fails.save = broken }, http.StatusInternalServerError, http.StatusOK},
		"thaw":          {func(sb *fakeSandbox) { sb.fails.thaw = broken }, http.StatusNotFound, http.StatusNotFound},
		"save and thaw": {func(sb *fakeSandbox) { sb.fails.save, sb.fails.thaw = broken, broken }, http.StatusNotFound, http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, fake := startFake(t, Options{})
			id := create(t, c, `{"templateID":"base"}`)
			tt.set(fake.boxes[id])
			status, text := do(t, c, "POST", "/sandboxes/"+id+"/snapshots", `{}`)
			var failed struct{ Message string }
			if err := json.Unmarshal([]byte(text), &failed); err != nil || status != tt.want || !strings.Contains(failed.Message, "it is broken") {
				t.Errorf("got %d %s, want %d with the cause", status, text, tt.want)
			}
			if status, text = do(t, c, "GET", "/sandboxes/"+id, ""); status != tt.then {
				t.Errorf("then: got %d %s, want %d", status, text, tt.then)
			}
			if status, text := do(t, c, "GET", "/snapshots", ""); status != http.StatusOK || text != "[]" {
				t.Errorf("got %d %s, want no snapshot", status, text)
			}
		})
	}
}
