//go:build linux

package dockertest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// client is the docker command of Debian's package. This command includes BuildKit; the docker
// commands of other packages need a plugin for BuildKit.
const client = "/usr/bin/docker"

// Build builds a Dockerfile, and puts the files of its last stage into a directory.
func (d *Daemon) Build(t testing.TB, context, file, to string, args map[string]string) {
	t.Helper()
	named := filepath.Join(t.TempDir(), "Dockerfile")
	must.Do(t, os.WriteFile(named, []byte(file), 0o600))
	words := []string{"--host", d.Host(), "build", "--network=none", "--progress=plain", "--file", named, "--output", "type=local,dest=" + to}
	for name, value := range args {
		words = append(words, "--build-arg", name+"="+value)
	}
	command := exec.CommandContext(t.Context(), client, append(words, context)...)
	command.Env = append(os.Environ(), "DOCKER_BUILDKIT=1")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("docker build: %v\n%s\n%s", err, out, file)
	}
}
