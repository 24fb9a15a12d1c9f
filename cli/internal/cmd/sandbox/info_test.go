package sandbox

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
)

// TestInfoOfLocalCloud checks that fields that only a local cloud sends are shown, and only
// if they are set.
func TestInfoOfLocalCloud(t *testing.T) {
	t.Parallel()
	info := &sandbox.Info{ID: "i1", Engine: "docker", Mounts: []sandbox.Mount{{Dir: "/data", Path: "/in"}, {Dir: "/out", Path: "/made", Writable: true}}}
	rows := infoRows(info, time.Now(), false)
	for _, want := range [][]string{{"Engine", "docker"}, {"Mount", "/data at /in, read-only"}, {"Mount", "/out at /made, writable"}} {
		if !slices.ContainsFunc(rows, func(row []string) bool { return slices.Equal(row, want) }) {
			t.Errorf("got %q, want %q among them", rows, want)
		}
	}
	for _, row := range infoRows(&sandbox.Info{ID: "i1"}, time.Now(), false) {
		if row[0] == "Engine" || row[0] == "Mount" {
			t.Errorf("got %q of a service that says nothing of it", row)
		}
	}
	for info, want := range map[*sandbox.Info]bool{info: true, {ID: "i1"}: false} {
		text, err := json.Marshal(viewOf(info))
		must.Do(t, err)
		if got := strings.Contains(string(text), `"engine":"docker","mounts":[{"dir":"/data","path":"/in"},{"dir":"/out","path":"/made","writable":true}]`); got != want {
			t.Errorf("got %s, want engine and mounts: %v", text, want)
		}
		if strings.Contains(string(text), `"engine"`) != want {
			t.Errorf("got %s, want an engine: %v", text, want)
		}
	}
}
