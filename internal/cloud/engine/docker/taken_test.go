//go:build linux

package docker_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker/dockertest"
)

// TestPathTaken checks that an image may have a directory where a program is copied to, with
// daemons that mount the program and with those that it is copied for.
func TestPathTaken(t *testing.T) {
	t.Parallel()
	d := dockertest.Shared(t)
	const image, maker = "e2bctl-test:taken", "e2bctl-test-taken"
	dir := filepath.Join(t.TempDir(), ".e2bctl")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "theirs"), []byte("theirs"), 0o644)); err != nil {
		t.Fatal(err)
	}
	d.Docker(t, "create", "--name", maker, dockertest.Bare, "sh")
	t.Cleanup(func() { d.Docker(t, "rm", maker) })
	d.Docker(t, "cp", dir, maker+":/")
	d.Docker(t, "commit", maker, image)

	s := start(t, open(t, docker.Options{Image: image}), engine.SandboxOptions{ID: "mounted"})
	if got := run(t, s, "cat /.e2bctl/theirs"); got != "theirs" {
		t.Errorf("mounted: got %q, want what the image has", got)
	}
	private := filepath.Join(t.TempDir(), "program") // which the users of a container cannot execute
	copyProgram(t, dockertest.Program(t), private)
	e, err := docker.Open(t.Context(), docker.Options{Host: d.Host(), Image: image, Binary: private})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	if got := run(t, start(t, e, engine.SandboxOptions{ID: "copied"}), "test -f /.e2bctl && echo program"); got != "program" {
		t.Errorf("copied: got %q, want the program", got)
	}
}

func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Close()); err != nil {
		t.Fatal(err)
	}
}
