//go:build linux

package local_test

import (
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker/dockertest"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
	"github.com/e2bctl/e2bctl/sandbox/template"
)

// dockerOptions are those of a cloud on the tests' own daemon.
func dockerOptions(t *testing.T, p local.DockerParams) []local.Option {
	t.Helper()
	p.Host, p.Image = dockertest.Shared(t).Host(), dockertest.Image
	return []local.Option{local.WithEngine(local.EngineDocker), local.WithDocker(p), local.WithBinary(dockertest.Program(t))}
}

// TestDocker does with the SDK what the documentation's container does: half a processor,
// 512 MiB, 100 processes, no capabilities, as nobody.
func TestDocker(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, dockerOptions(t, local.DockerParams{
		MemLimit: 512 << 20, CPUQuota: 50_000, PidsLimit: 100, CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"}, User: "nobody",
	})...)
	sb := cloud.Create(t, sandbox.WithEnvs(map[string]string{"GREETING": "hello"}))
	if got := run(t, sb, `echo "$GREETING $(id -u) $FROM_IMAGE"; grep CapBnd /proc/self/status`); got != "hello 65534 yes\nCapBnd:\t0000000000000000" {
		t.Errorf("got %q", got)
	}
	if err := sb.Files.Write(t.Context(), "data/in.txt", []byte("six seven"), nil); err != nil {
		t.Fatal(err)
	}
	if got, err := sb.Files.Read(t.Context(), "data/in.txt", nil); err != nil || string(got) != "six seven" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := sb.RunCode(t.Context(), "x = open('data/in.txt').read()", nil); err != nil {
		t.Fatal(err)
	}
	if got, err := sb.RunCode(t.Context(), "len(x)", nil); err != nil || got.Text() != "9" {
		t.Errorf("got %v, %v, want 9", got, err)
	}
}

// TestDockerAlias checks that a cloud of rooms has containers too, by the name of a template.
func TestDockerAlias(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, append(dockerOptions(t, local.DockerParams{}), local.WithEngine(local.EngineRoom))...)
	if got := run(t, cloud.Create(t, sandbox.WithTemplate("base-docker")), "echo $FROM_IMAGE"); got != "yes" {
		t.Errorf("base-docker: got %q, want a container", got)
	}
	if got := run(t, cloud.Create(t), "echo $FROM_IMAGE"); got != "" {
		t.Errorf("base: got %q, want a room", got)
	}
}

// TestNoDocker checks that a machine without a daemon is told what to install.
func TestNoDocker(t *testing.T) {
	t.Parallel()
	_, err := local.Start(t.Context(), local.WithEngine(local.EngineDocker), local.WithDocker(local.DockerParams{Host: "unix:///no/such.sock"}))
	if err == nil || !strings.Contains(err.Error(), "install") || !strings.Contains(err.Error(), "unix:///no/such.sock") {
		t.Errorf("got %v, want what was tried and what to install", err)
	}
}

// TestDockerSnapshot checks that a snapshot of a container makes containers, also in a cloud
// whose rooms share the files of theirs.
func TestDockerSnapshot(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, append(dockerOptions(t, local.DockerParams{}), local.WithEngine(local.EngineRoom))...)
	for template, want := range map[string]string{"base-docker": "mine yes", "base": "mine"} {
		sb := cloud.Create(t, sandbox.WithTemplate(template))
		run(t, sb, "echo mine >~/file")
		for range 2 { // the second one of what the first one made
			snapshot, err := sb.Snapshot(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			sb = cloud.Create(t, sandbox.WithTemplate(snapshot.ID))
			if got := run(t, sb, "echo $(cat ~/file) $FROM_IMAGE"); got != want {
				t.Errorf("a snapshot of %s: got %q, want %q", template, got, want)
			}
		}
	}
}

// TestDockerBuild builds a template in containers, step by step.
func TestDockerBuild(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, dockerOptions(t, local.DockerParams{})...)
	client, err := sandbox.NewClient(cloud.Options()...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	d := template.FromBase().Run("echo one >/one", nil).Run("cat /one >/two; rm /one", nil).Env(map[string]string{"MADE": "built"}).
		Copy("go.mod", "/copied", &template.CopyParams{User: "user:user"}) // as SDKs say it; the image has no such group
	built, err := template.Build(t.Context(), client.API(), "made", d, &template.BuildParams{Dir: "../.."})
	if err != nil {
		t.Fatal(err)
	}
	if got := run(t, cloud.Create(t, sandbox.WithTemplate(built.Name)), "echo $(cat /two) $MADE $FROM_IMAGE; ls /one 2>/dev/null || echo gone; head -n 1 /copied"); got != "one built yes\ngone\nmodule github.com/e2bctl/e2bctl" {
		t.Errorf("got %q, want what was built", got)
	}
}
