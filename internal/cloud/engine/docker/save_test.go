//go:build linux

package docker_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker/dockertest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// look prints the files that TestSave changes.
const look = `cd; head -n 1 text; stat -c '%a %u %g' text deep/tree; readlink link; stat -c %h hard; tail -n 1 /etc/passwd; test -e /bin/cat || echo no cat; test -d /usr/bin && echo directory || echo none; ls /usr`

// TestSave checks that a sandbox begins with the files that another one wrote and changed, and
// without those that it removed, however often it is saved.
func TestSave(t *testing.T) {
	t.Parallel()
	e := open(t, docker.Options{Image: dockertest.Bare})
	s := start(t, e, engine.SandboxOptions{ID: "first"})
	run(t, s, `cd; echo mine >text; chmod 640 text; chown 12:34 text; mkdir -p deep/tree; chmod 711 deep/tree; ln -s text link; ln text hard; mkfifo fifo
echo added >>/etc/passwd; rmdir /usr/bin; echo file >/usr/bin; rm /bin/cat; ln -s busybox /bin/tac2`)
	want := run(t, s, look)
	for _, id := range []string{"second", "third"} {
		must.Do(t, s.Freeze(t.Context()))
		dir := t.TempDir()
		must.Do(t, s.Save(t.Context(), dir))
		if _, err := s.SaveLayer(t.Context(), dir); !errors.Is(err, &engine.LackError{Feature: engine.SharedLayers}) {
			t.Errorf("a layer: got %v, want %v", err, &engine.LackError{Feature: engine.SharedLayers})
		}
		if info, err := os.Stat(filepath.Join(dir, "container.tar")); err != nil || info.Size() > 1<<20 {
			t.Errorf("the saved files: %v, %v, want nothing of the image", info, err)
		}
		s = start(t, e, engine.SandboxOptions{ID: id, Files: dir})
		if got := run(t, s, look); got != want {
			t.Errorf("%s: got %q, want %q", id, got, want)
		}
	}
	must.Do(t, s.Freeze(t.Context()))
	small := start(t, e, engine.SandboxOptions{ID: "small", Limits: engine.Limits{DiskBytes: 1 << 20}})
	run(t, small, "truncate -s 3M /sparse")
	must.Do(t, small.Freeze(t.Context()))
	if err := small.Save(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "limit of disk") {
		t.Errorf("more than its limit: got %v", err)
	}
}
