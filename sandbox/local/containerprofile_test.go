//go:build linux

package local_test

import (
	"os"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker/dockertest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// inContainer is the script of a user's first steps in a container: a command in a sandbox of its
// own, and a sandbox that stays, is paused, resumed and killed.
const inContainer = `exec 2>&1
set -e
e2bctl doctor --local >/tmp/doctor || grep isolation /tmp/doctor
e2bctl run --local 'echo a line >file && chmod 600 file && cat file'
e2bctl code run --local -c '6 * 7'
e2bctl local up --background >/tmp/env
id=$(e2bctl create --local)
e2bctl exec "$id" 'echo kept >file; (sleep 1000 >/dev/null 2>&1 &)'
e2bctl pause "$id" >/dev/null
e2bctl resume "$id" >/dev/null
e2bctl exec "$id" 'cat file; ls >/dev/null'
e2bctl kill "$id" >/dev/null
e2bctl local down
echo done`

// TestDockerProfiles makes a user's first calls in real containers, with the isolation that the
// options of the container allow according to the documentation. The restricted profile of
// Kubernetes demands another user than root, no capabilities and no new ones, the runtime's filter
// of calls, and files for reading only, except those of a volume.
func TestDockerProfiles(t *testing.T) {
	t.Parallel()
	d := dockertest.Shared(t)
	const (
		both = " --security-opt seccomp=unconfined --security-opt systempaths=unconfined"
		kube = "--user 1000 --cap-drop ALL --security-opt no-new-privileges --read-only"
		caps = " --cap-add SYS_ADMIN --cap-add SYS_PTRACE"
	)
	for options, isolation := range map[string]string{
		"":                   "restricted",
		"--user 1000":        "restricted",
		"--cap-drop ALL":     "restricted",
		caps:                 "restricted",
		kube:                 "restricted",
		kube + both:          "full",
		both:                 "full",
		"--user 1000" + both: "full",
		caps + both:          "full",
		"--cpus 0.5 --memory 700m --pids-limit 300": "restricted",
	} {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			must.Do(t, os.Chmod(home, 0o777))
			words := strings.Fields("run --rm --network none " + options)
			words = append(words, "--volume", dockertest.Program(t)+":/bin/e2bctl:ro", "--volume", home+":/tmp", "--env", "HOME=/tmp", dockertest.Image,
				"/bin/sh", "-c", inContainer)
			out := d.Docker(t, words...)
			for _, want := range []string{"a line\n", "42\n", "isolation: " + isolation, "kept\n", "\ndone"} {
				if !strings.Contains(out+"\n", want) {
					t.Errorf("got %s, want %q in it", out, want)
				}
			}
		})
	}
}
