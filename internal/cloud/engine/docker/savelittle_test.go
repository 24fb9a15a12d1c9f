//go:build linux

package docker_test

import (
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker/dockertest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestSaveLittle checks that a sandbox that wrote little begins again with just that, and so does
// one whose files are exported because they are many.
func TestSaveLittle(t *testing.T) {
	t.Parallel()
	e := open(t, docker.Options{Image: dockertest.Bare})
	for id, writes := range map[string]string{
		"untouched": ":",
		"little":    "cd; mkdir -p deep/tree; echo mine >deep/tree/text; chmod 4751 deep/tree/text; chown 12:34 deep/tree/text; chmod 711 deep; ln -s deep link; mkfifo fifo; rm /bin/cat; chmod 700 /usr",
		"much":      "cd; for i in $(seq 300); do : >$i; done",
	} {
		s := start(t, e, engine.SandboxOptions{ID: id})
		const look = "cd; ls -lnR --full-time . 2>/dev/null | grep -v total; stat -c '%a %u %g' /usr; ls /bin | wc -l"
		run(t, s, writes)
		want := run(t, s, look)
		must.Do(t, s.Freeze(t.Context()))
		dir := t.TempDir()
		must.Do(t, s.Save(t.Context(), dir))
		s = start(t, e, engine.SandboxOptions{ID: id + "-2", Files: dir})
		if got := run(t, s, look); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", id, got, want)
		}
	}
}
