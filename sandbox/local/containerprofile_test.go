//go:build linux

package local_test

import (
	"os"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker/dockertest"
)

// TestDockerRestrictedProfile runs the command in containers with what the restricted profile of
// Kubernetes demands: another user than root, no capabilities and no new ones, the runtime's filter
// of calls, and files for reading only, except those of a volume.
func TestDockerRestrictedProfile(t *testing.T) {
	t.Parallel()
	d := dockertest.Shared(t)
	for options, want := range map[string]string{
		"":                                  "a line\n1000\nstatus 0",
		"--security-opt seccomp=unconfined": "a line\n1000\nstatus 0",
	} {
		home := t.TempDir()
		if err := os.Chmod(home, 0o777); err != nil {
			t.Fatal(err)
		}
		words := strings.Fields("run --rm --network none --user 1000 --cap-drop ALL --security-opt no-new-privileges --read-only " + options)
		words = append(words, "--volume", dockertest.Program(t)+":/bin/e2bctl:ro", "--volume", home+":/tmp", "--env", "HOME=/tmp", dockertest.Image,
			"/bin/sh", "-c", "e2bctl run --local 'echo a line >file && cat file; id -u' 2>&1; echo status $?")
		if out := d.Docker(t, words...); !strings.Contains(out, want) {
			t.Errorf("with %q more: got %s, want %q", options, out, want)
		}
	}
}
