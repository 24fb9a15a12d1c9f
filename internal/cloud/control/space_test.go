package control

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestSlowDisk checks that a slow disk does not delay the answer to the deletion of a paused
// sandbox beyond 10 seconds. After that time, a client believes that the deletion failed.
func TestSlowDisk(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.mustCreate(t, `{"templateID":"base"}`)
	s.must(t, "POST", "/sandboxes/"+id+"/pause", ``, 204)
	asked, gone := false, time.Now().Add(10*time.Second)
	s.freed = func(ctx context.Context) {
		asked = true
		end, ok := ctx.Deadline()
		if !ok || !end.Before(gone) {
			t.Errorf("the answer may come at %v, after the client has gone at %v", end, gone)
		}
	}
	s.must(t, "DELETE", "/sandboxes/"+id, ``, 204)
	if !asked {
		t.Error("the answer waits for no space at all")
	}
}

// TestSpaceIsWhole checks that the space of each kind of objects is reported in the field for that
// kind.
func TestSpaceIsWhole(t *testing.T) {
	t.Parallel()
	s := start(t)
	must.Do(t, s.builder.Uploads().Add(someHash, strings.NewReader("text"), 4))
	s.mustCreate(t, `{"templateID":"base"}`)
	want := `{"bytes":4,"cap":21474836480,"layers":{"count":0,"bytes":0},"cache":{"count":0,"bytes":0},"uploads":{"count":1,"bytes":4}}`
	if _, text := s.do(t, "GET", "/local/space", ""); text != want {
		t.Errorf("got %s, want %s", text, want)
	}
}

// TestResourcesOf checks that sandboxes have the resources of their engine, or else of the cloud,
// and that a disk without a limit has no size.
func TestResourcesOf(t *testing.T) {
	t.Parallel()
	s := start(t)
	for name, want := range map[engine.Name]Resources{
		"": {CPUs: 2, MemoryMB: 2048, DiskMB: 1024}, engine.Docker: {CPUs: 1, MemoryMB: 512, DiskMB: 1024}, engine.GVisor: {CPUs: 2, MemoryMB: 2048},
	} {
		if got := s.resourcesOf(name, engine.Resources{}); got != want {
			t.Errorf("%q: got %+v, want %+v", name, got, want)
		}
		own := engine.Resources{CPUs: 0.5, MemoryBytes: 64 << 20, DiskBytes: 32 << 20}
		small := lifecycle.Sandbox{Request: lifecycle.Request{Template: lifecycle.Template{Engine: name, Resources: engine.Resources{CPUs: 3}}, Resources: own}}
		wantDisk := 32
		if name == engine.GVisor { // it has no disk limit
			wantDisk = 0
		}
		if got := s.has(small); got != (Resources{CPUs: 1, MemoryMB: 64, DiskMB: wantDisk}) {
			t.Errorf("%q of a sandbox that asks for %+v: got %+v", name, own, got)
		}
		asked := templates.Build{CPUs: 7, MemoryMB: 99, Content: templates.Content{Engine: name}}
		if got := s.resources(asked); got != (Resources{CPUs: 7, MemoryMB: 99, DiskMB: want.DiskMB}) {
			t.Errorf("%q that was asked for: got %+v, want the resources that were asked for", name, got)
		}
	}
}
