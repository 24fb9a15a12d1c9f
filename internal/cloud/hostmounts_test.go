//go:build linux

package cloud

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/mounts"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestHostMounts checks that a sandbox gets only directories of the host that the person who
// started the cloud allowed, and that this is checked again at a resume.
func TestHostMounts(t *testing.T) {
	t.Parallel()
	top, state := t.TempDir(), t.TempDir()
	in, below, every := filepath.Join(top, "in"), filepath.Join(top, "in", "below"), filepath.Join(top, "every")
	must.Do(t, errors.Join(os.MkdirAll(below, 0o755), os.Mkdir(every, 0o755), os.Symlink("/etc", filepath.Join(in, "out"))))
	allow := []mounts.Allowed{{Dir: in}}
	e := newTwoEngines()
	c := e.start(t, Options{State: state, AllowMounts: allow, Mounts: []mounts.Mount{{Dir: every, Path: "/every", Writable: true}}})
	ask := func(template, dir, rest string) string {
		return fmt.Sprintf(`{"templateID":%q,"autoPause":true,"mounts":[{"dir":%q,%s}]}`, template, dir, rest)
	}
	for _, tt := range []struct {
		body   string
		status int
		want   string
	}{
		{ask("base", top, `"path":"/x"`), 403, top}, {ask("base", "/etc", `"path":"/x"`), 403, "/etc"}, {ask("base", in+"/out", `"path":"/x"`), 403, "/in/out"},
		{ask("base", in+"/../every", `"path":"/x"`), 403, "clean absolute path"}, {ask("base", in, `"path":"/x","writable":true`), 403, "read-only"},
		{ask("base", "in", `"path":"/x"`), 400, "must be absolute"}, {ask("base", in, `"path":"x"`), 400, "must be absolute"}, {ask("base", in, `"path":"/proc/x"`), 400, "nothing can be mounted"}, {ask("base-docker", in, `"path":"/etc"`), 400, "would not start"}, {ask("base-docker", in, `"path":"/.e2bctl/x"`), 400, "the sandbox's own"},
	} {
		if status, text := do(t, c, "POST", "/v2/sandboxes", tt.body); status != tt.status || !strings.Contains(text, tt.want) {
			t.Errorf("%s: got %d %s, want %d and %q", tt.body, status, text, tt.status, tt.want)
		}
	}
	id := create(t, c, ask("base", below, `"path":"/x"`))
	got := e.room.boxes[id].options.Mounts
	want := []engine.Mount{{Dir: below, Path: "/x"}, {Dir: every, Path: "/every", Writable: true}}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(engine.Mount{}, "File")); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	if _, err := got[0].File.Stat(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("got error %v, want the directory to be closed after the start", err)
	}
	create(t, c, ask("base-docker", in, `"path":"/x"`))
	create(t, c, ask("base-docker", below, `"path":"/x"`))
	e.docker.refuses = fmt.Errorf("the directory %s: %w", in, engine.Lackf(engine.Mounts, "for a test"))
	if status, text := do(t, c, "POST", "/v2/sandboxes", ask("base-docker", in, `"path":"/x"`)); status != 400 || !strings.Contains(text, in+": "+engine.Lackf(engine.Mounts, "for a test").Error()) {
		t.Errorf("refused by the engine: got %d %s, want 400 with the reason", status, text)
	}
	must.Do(t, c.Close())

	e = newTwoEngines()
	c = e.start(t, Options{State: state})
	if status, text := do(t, c, "POST", "/sandboxes/"+id+"/connect", `{"timeout":60}`); status != 403 || !strings.Contains(text, below) {
		t.Errorf("resumed where nothing is allowed: got %d %s, want 403 and the name", status, text)
	}
	must.Do(t, c.Close())
	e = newTwoEngines()
	e.room.lacks = engine.Everything()
	c = e.start(t, Options{State: state, AllowMounts: allow})
	if status, text := do(t, c, "POST", "/sandboxes/"+id+"/connect", `{"timeout":60}`); status != 201 || len(e.room.boxes[id].options.Mounts) != 1 {
		t.Errorf("resumed: got %d %s, want the mount again", status, text)
	}
}

// TestSocketInHostMount checks that no service of this machine has a socket that sandboxes can replace.
func TestSocketInHostMount(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := start(t.Context(), Options{
		Dir: t.TempDir(), Python: &pyenv.Env{Python: "/opt/venv/bin/python3"}, AllowMounts: []mounts.Allowed{{Dir: dir, Writable: true}},
		HostServices: []network.Service{{Name: "near:1", Address: "127.0.0.1:2"}, {Name: "api:80", Address: "unix:" + filepath.Join(dir, "api.sock")}},
	}, nil)
	if err == nil || !strings.Contains(err.Error(), dir+", which sandboxes may change") {
		t.Errorf("got error %v, want one that names the directory", err)
	}
}

func TestHostMountsOfAll(t *testing.T) {
	t.Parallel()
	e := newTwoEngines()
	e.room.lacks = engine.Everything()
	e.room.lacks.Lack("no ground", engine.Mounts)
	c := e.start(t, Options{Mounts: []mounts.Mount{{Dir: t.TempDir(), Path: "/every"}}})
	if status, text := do(t, c, "POST", "/v2/sandboxes", `{"templateID":"base"}`); status != 400 || !strings.Contains(text, "local.WithMount): no ground") {
		t.Errorf("got %d %s, want 400 with the reason", status, text)
	}
	dir := t.TempDir()
	for _, bad := range []mounts.Mount{{Dir: dir, Path: "x"}, {Dir: dir, Path: "/"}, {Dir: filepath.Join(dir, "gone"), Path: "/x"}} {
		if _, err := start(t.Context(), Options{Dir: t.TempDir(), Mounts: []mounts.Mount{bad}}, map[engine.Name]opener{engine.Room: opens(e.room)}); err == nil || !strings.Contains(err.Error(), bad.Dir) {
			t.Errorf("%+v: got error %v, want one that names it", bad, err)
		}
	}
}
