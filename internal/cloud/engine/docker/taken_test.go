//go:build linux

package docker_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker/dockertest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestPathTaken checks that an image may have a directory where a program is copied to, with
// daemons that mount the program and with those that it is copied for.
func TestPathTaken(t *testing.T) {
	t.Parallel()
	d := dockertest.Shared(t)
	const image, maker = "e2bctl-test:taken", "e2bctl-test-taken"
	dir := filepath.Join(t.TempDir(), ".e2bctl")
	must.Do(t, errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "theirs"), []byte("theirs"), 0o644)))
	d.Docker(t, "create", "--name", maker, dockertest.Bare, "sh")
	t.Cleanup(func() { d.Docker(t, "rm", maker) })
	d.Docker(t, "cp", dir, maker+":/")
	d.Docker(t, "commit", maker, image)

	s := start(t, open(t, docker.Options{Image: image}), engine.SandboxOptions{ID: "mounted"})
	if got := run(t, s, "cat /.e2bctl/theirs"); got != "theirs" {
		t.Errorf("mounted: got %q, want what the image has", got)
	}
	e := open(t, docker.Options{Image: image})
	docker.CopyPrograms(e)
	if got := run(t, start(t, e, engine.SandboxOptions{ID: "copied"}), "test -f /.e2bctl && echo program"); got != "program" {
		t.Errorf("copied: got %q, want the program", got)
	}
}
