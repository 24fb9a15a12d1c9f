//go:build linux

package cloud

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/must"
)

// createVolume makes a volume and returns its id.
func createVolume(t *testing.T, c *Cloud, name string) string {
	t.Helper()
	status, text := do(t, c, "POST", "/volumes", fmt.Sprintf(`{"name":%q}`, name))
	var v struct{ VolumeID string }
	if err := json.Unmarshal([]byte(text), &v); err != nil || status != 201 {
		t.Fatalf("got %d %s, want a volume", status, text)
	}
	return v.VolumeID
}

// TestVolumes checks that a sandbox begins with the directories of its volumes. The volumes cannot
// be deleted as long as the sandbox runs or can be resumed, even after a restart.
func TestVolumes(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	first, fake := startFake(t, Options{State: state})
	volume := createVolume(t, first, "data")
	id := create(t, first, `{"templateID":"base","autoPause":true,"volumeMounts":[{"name":"data","path":"/data"},{"name":"data","path":"/again"}]}`)
	mounted := fake.boxes[id].options.Volumes
	if len(mounted) != 2 || mounted[0].Path != "/data" || mounted[1].Path != "/again" {
		t.Fatalf("got %+v, want two mounts", mounted)
	}
	if info, err := os.Stat(mounted[0].Dir); err != nil || !info.IsDir() || filepath.Dir(filepath.Dir(mounted[0].Dir)) != filepath.Join(state, "files") {
		t.Errorf("got %s and error %v, want a directory of the store", mounted[0].Dir, err)
	}
	inUse := func(c *Cloud) {
		t.Helper()
		if status, text := do(t, c, "DELETE", "/volumes/"+volume, ""); status != 409 {
			t.Errorf("delete: got %d %s, want 409", status, text)
		}
	}
	inUse(first)
	must.Do(t, first.Close())

	second, fake := startFake(t, Options{State: state})
	inUse(second) // paused
	if status, text := do(t, second, "POST", "/sandboxes/"+id+"/connect", `{"timeout":60}`); status != 201 {
		t.Fatalf("connect: got %d %s, want 201", status, text)
	}
	if diff := cmp.Diff(mounted, fake.boxes[id].options.Volumes); diff != "" {
		t.Errorf("resumed with (-want +got):\n%s", diff)
	}
	inUse(second)
	if status, text := do(t, second, "DELETE", "/sandboxes/"+id, ""); status != 204 {
		t.Fatalf("kill: got %d %s, want 204", status, text)
	}
	if status, text := do(t, second, "DELETE", "/volumes/"+volume, ""); status != 204 {
		t.Errorf("delete: got %d %s, want 204", status, text)
	}
	if _, err := os.Stat(mounted[0].Dir); err == nil {
		t.Error("the files of the deleted volume are left")
	}
}

// withoutVolumes is an engine that does not support volumes.
type withoutVolumes struct{ *fakeRoom }

func (r withoutVolumes) NewSandbox(ctx context.Context, o engine.SandboxOptions) (engine.Sandbox, error) {
	if len(o.Volumes) > 0 {
		return nil, engine.Lackf(engine.Volumes, "of the moon")
	}
	return r.fakeRoom.NewSandbox(ctx, o)
}

func TestVolumesRefused(t *testing.T) {
	t.Parallel()
	fake := &fakeRoom{ended: make(chan struct{}), boxes: map[string]*fakeSandbox{}}
	c, err := start(t.Context(), Options{Dir: t.TempDir()}, map[engine.Name]opener{engine.Room: opens(withoutVolumes{fake})})
	must.Do(t, err)
	defer c.Close()
	volume := createVolume(t, c, "data")
	status, text := do(t, c, "POST", "/sandboxes", `{"templateID":"base","volumeMounts":[{"name":"data","path":"/data"}]}`)
	if status != 400 || !strings.Contains(text, "volumeMounts") || !strings.Contains(text, "of the moon") {
		t.Errorf("got %d %s, want 400 with the field and the reason", status, text)
	}
	if status, text := do(t, c, "DELETE", "/volumes/"+volume, ""); status != 204 {
		t.Errorf("delete: got %d %s, want it not to be held", status, text)
	}
}
