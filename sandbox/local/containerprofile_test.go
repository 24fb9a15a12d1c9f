//go:build linux

package local_test

import (
	"os"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker/dockertest"
)

// TestDockerProfiles runs the command in real containers that are started without any option for
// it: as root, as another user, and with what the restricted profile of Kubernetes demands, which
// is another user than root, no capabilities and no new ones, the runtime's filter of calls, and
// files for reading only, except those of a volume.
func TestDockerProfiles(t *testing.T) {
	t.Parallel()
	d := dockertest.Shared(t)
	const restricted = "--user 1000 --cap-drop ALL --security-opt no-new-privileges --read-only "
	for options, want := range map[string]string{
		"":               "a line\nstatus 0",
		"--user 1000":    "a line\nstatus 0",
		"--cap-drop ALL": "a line\nstatus 0",
		restricted:       "a line\nstatus 0",
		restricted + "--security-opt seccomp=unconfined": "a line\nstatus 0",
	} {
		home := t.TempDir()
		if err := os.Chmod(home, 0o777); err != nil {
			t.Fatal(err)
		}
		words := strings.Fields("run --rm --network none " + options)
		words = append(words, "--volume", dockertest.Program(t)+":/bin/e2bctl:ro", "--volume", home+":/tmp", "--env", "HOME=/tmp", dockertest.Image,
			"/bin/sh", "-c", "e2bctl run --local 'echo a line >file && chmod 600 file && cat file' 2>&1; echo status $?")
		if out := d.Docker(t, words...); !strings.Contains(out, want) || !strings.Contains(out, "restricted") {
			t.Errorf("with %q: got %s, want %q", options, out, want)
		}
	}
}
