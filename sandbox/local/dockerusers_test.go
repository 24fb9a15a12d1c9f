//go:build linux

package local_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker/dockertest"
	"github.com/e2bctl/e2bctl/internal/cloud/mounts"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
	"github.com/e2bctl/e2bctl/sandbox/template"
)

// TestDockerKernelUser checks the users of a container: commands and files belong to the last USER
// of the Dockerfile. Kernels run as root, as on all engines, or as that USER if root has too few
// capabilities for that.
func TestDockerKernelUser(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	reference, _ := savedImage(t, dir, dockertest.Image, "USER nobody", "WORKDIR /tmp")
	for name, tt := range map[string]struct {
		drop   []string
		kernel string
		maker  uint32 // owns what a kernel makes in a mount
	}{
		"root":        {nil, "0", mounts.StrangerID},
		"all dropped": {[]string{"ALL"}, "65534", 1234},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shared := t.TempDir()
			must.Do(t, os.Chown(shared, 1234, 1234))
			cloud := sandboxtest.New(t, append(dockerOptions(t, local.DockerParams{CapDrop: tt.drop}), local.WithImageDir(dir), local.WithWritableMounts(shared))...)
			client, err := sandbox.NewClient(cloud.Option())
			must.Do(t, err)
			defer client.Close()
			built, err := template.Build(t.Context(), client.Templates, "made", template.FromImage(reference, nil), nil)
			must.Do(t, err)
			sb := cloud.Create(t, sandbox.WithTemplate(built.Name), sandbox.WithMount(sandbox.Mount{Dir: shared, Path: "/data", Writable: true}))
			if got := sandboxtest.Run(t, sb, "id -u; id -G; pwd; echo made >/data/command; grep CapEff /proc/self/status"); got != "65534\n65534\n/tmp\nCapEff:\t0000000000000000" {
				t.Errorf("a command: got %q", got)
			}
			if err := sb.Files.WriteText(t.Context(), "/tmp/written", "text", nil); err != nil {
				t.Error(err)
			}
			if got := sandboxtest.Run(t, sb, "stat -c %u /tmp/written"); got != "65534" {
				t.Errorf("a file belongs to %q, want nobody", got)
			}
			ex, err := sb.RunCode(t.Context(), "import os; open('/data/kernel', 'w').close(); os.getuid()", nil)
			if err != nil || ex.Text() != tt.kernel {
				t.Errorf("kernels run as %+v, %v, want %s", ex, err, tt.kernel)
			}
			for name, want := range map[string]uint32{"command": 1234, "kernel": tt.maker} {
				info, err := os.Stat(filepath.Join(shared, name))
				if err != nil || info.Sys().(*syscall.Stat_t).Uid != want {
					t.Errorf("what the %s made is %+v, %v, want one of %d", name, info, err, want)
				}
			}
		})
	}
}
