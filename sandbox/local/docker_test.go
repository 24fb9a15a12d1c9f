//go:build linux

package local_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker/dockertest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/pinned"
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

// TestDocker gives a sandbox the limits of the documentation's container: half a processor,
// 512 MiB, 100 processes, no capabilities, the user nobody.
func TestDocker(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, dockerOptions(t, local.DockerParams{
		MemoryBytes: 512 << 20, CPUs: 0.5, MaxProcesses: 100, CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"}, User: "nobody",
	})...)
	sb := cloud.Create(t, sandbox.WithEnvs(map[string]string{"GREETING": "hello"}))
	if got := sandboxtest.Run(t, sb, `echo "$GREETING $(id -u) $FROM_IMAGE"; grep CapBnd /proc/self/status`); got != "hello 65534 yes\nCapBnd:\t0000000000000000" {
		t.Errorf("got %q", got)
	}
	must.Do(t, sb.Files.Write(t.Context(), "data/in.txt", []byte("six seven"), nil))
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
	if got := sandboxtest.Run(t, cloud.Create(t, sandbox.WithTemplate("base-docker")), "echo $FROM_IMAGE"); got != "yes" {
		t.Errorf("base-docker: got %q, want a container", got)
	}
	if got := sandboxtest.Run(t, cloud.Create(t), "echo $FROM_IMAGE"); got != "" {
		t.Errorf("base: got %q, want a room", got)
	}
}

// TestNoDocker checks that the error on a machine without a daemon names the program to install.
func TestNoDocker(t *testing.T) {
	t.Parallel()
	_, err := local.Start(t.Context(), local.WithEngine(local.EngineDocker), local.WithDocker(local.DockerParams{Host: "unix:///no/such.sock"}))
	if err == nil || !strings.Contains(err.Error(), "install") || !strings.Contains(err.Error(), "unix:///no/such.sock") {
		t.Errorf("got %v, want what was tried and what to install", err)
	}
}

// TestDockerSetup checks that a program that is linked to libraries can start containers only
// after setup has compiled the program that they run.
func TestDockerSetup(t *testing.T) {
	host := dockertest.Shared(t).Host()
	compiled, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE").Output()
	must.Do(t, err)
	t.Setenv("GOCACHE", strings.TrimSpace(string(compiled)))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	options := []local.Option{local.WithEngine(local.EngineDocker), local.WithDocker(local.DockerParams{Host: host, Image: dockertest.Image})}
	cloud, err := local.Start(t.Context(), options...)
	if err == nil {
		if err := cloud.Close(); err != nil {
			t.Error(err)
		}
		pinned.Skip(t, "this test program is static, so containers run it as it is: test it with -race")
	}
	if !strings.Contains(err.Error(), "linked to libraries") || !strings.Contains(err.Error(), "e2bctl local setup --engine docker") {
		t.Errorf("got %v, want that the program for containers has to be prepared", err)
	}
	path, err := local.SetupDocker(t.Context(), nil, &local.SetupDockerParams{Host: host})
	must.Do(t, err)
	program, err := os.ReadFile(path)
	must.Do(t, err)
	if again, err := local.SetupDocker(t.Context(), nil, &local.SetupDockerParams{Host: host}); again != path || err != nil {
		t.Errorf("got %q, %v the second time, want %s", again, err, path)
	}
	sb := sandboxtest.New(t, options...).Create(t)
	if got, want := sandboxtest.Run(t, sb, "sha256sum /dev/.e2bctl /.e2bctl 2>/dev/null | cut -d ' ' -f 1; echo $FROM_IMAGE"), fmt.Sprintf("%x\nyes", sha256.Sum256(program)); got != want {
		t.Errorf("the first process of the container: got %q, want %q", got, want)
	}
}

// TestDockerSnapshot checks that a snapshot of a container makes containers, also in a cloud
// whose rooms share the files of theirs.
func TestDockerSnapshot(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, append(dockerOptions(t, local.DockerParams{}), local.WithEngine(local.EngineRoom))...)
	for template, want := range map[string]string{"base-docker": "mine yes", "base": "mine"} {
		sb := cloud.Create(t, sandbox.WithTemplate(template))
		sandboxtest.Run(t, sb, "echo mine >~/file")
		for range 2 { // the second snapshot is of a sandbox made from the first one
			snapshot, err := sb.Snapshot(t.Context(), nil)
			must.Do(t, err)
			sb = cloud.Create(t, sandbox.WithTemplate(snapshot.ID))
			if got := sandboxtest.Run(t, sb, "echo $(cat ~/file) $FROM_IMAGE"); got != want {
				t.Errorf("a snapshot of %s: got %q, want %q", template, got, want)
			}
		}
	}
}

// TestDockerBuild builds a template in containers, step by step.
func TestDockerBuild(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, dockerOptions(t, local.DockerParams{})...)
	client, err := sandbox.NewClient(cloud.Option())
	must.Do(t, err)
	defer client.Close()
	d := template.FromBase().Run("echo one >/one", nil).Run("cat /one >/two; rm /one", nil).Env(map[string]string{"MADE": "built"}).
		Copy("go.mod", "/copied", &template.CopyParams{User: "user:user"}) // as SDKs say it; the image has no such group
	built, err := template.Build(t.Context(), client.Templates, "made", d, &template.BuildParams{Dir: "../.."})
	must.Do(t, err)
	if got := sandboxtest.Run(t, cloud.Create(t, sandbox.WithTemplate(built.Name)), "echo $(cat /two) $MADE $FROM_IMAGE; ls /one 2>/dev/null || echo gone; head -n 1 /copied"); got != "one built yes\ngone\nmodule github.com/e2bctl/e2bctl" {
		t.Errorf("got %q, want what was built", got)
	}
}

// savedImage applies changes to an image of the tests' daemon, and saves the result as an archive
// in dir. It returns the reference of the archive, and the id of the image.
func savedImage(t *testing.T, dir, image string, changes ...string) (reference, id string) {
	t.Helper()
	d, file, changed := dockertest.Shared(t), filepath.Join(dir, "image.tar"), "e2bctl-test:"+strings.ToLower(t.Name())
	args := []string{"commit"}
	for _, c := range changes {
		args = append(args, "--change", c)
	}
	made := d.Docker(t, "create", image, "true")
	id = d.Docker(t, append(args, made, changed)...)
	d.Docker(t, "rm", made)
	d.Docker(t, "save", "--output", file, changed)
	d.Docker(t, "rmi", changed)
	return "docker-archive:" + file, id
}

// emptyCache empties the cache as e2bctl local prune --cache does.
func emptyCache(t *testing.T, cloud *local.Cloud) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, cloud.URL()+"/local/space/cache", nil)
	must.Do(t, err)
	request.Header.Set("X-Api-Key", string(cloud.APIKey()))
	transport := &http.Transport{DisableKeepAlives: true}
	answer, err := transport.RoundTrip(request)
	must.Do(t, err)
	if answer.Body.Close(); answer.StatusCode >= http.StatusMultipleChoices {
		t.Fatalf("the cache cannot be emptied: %s", answer.Status)
	}
}

// TestDockerImage builds a template from an image in containers. The daemon has the image for
// as long as there is something that stands on it, also when the cloud starts again.
func TestDockerImage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	reference, id := savedImage(t, dir, dockertest.Bare, "ENV OF=the-image PATH=/opt/bin:/bin", "WORKDIR /srv", "LABEL made=there")
	options := append(dockerOptions(t, local.DockerParams{}), local.WithImageDir(dir), local.WithStateDir(filepath.Join(t.TempDir(), "state")))
	left := func() string {
		return dockertest.Shared(t).Docker(t, "image", "ls", "--quiet", "--filter", "label=e2bctl.image="+id)
	}
	var snapshot string
	with := func(do func(cloud *local.Cloud, client *sandbox.Client)) {
		t.Helper()
		cloud, err := local.Start(t.Context(), options...)
		must.Do(t, err)
		client, err := sandbox.NewClient(cloud.Option())
		must.Do(t, err)
		defer func() {
			client.Close()
			if err := cloud.Close(); err != nil {
				t.Error(err)
			}
		}()
		do(cloud, client)
	}
	started := func(client *sandbox.Client, name string) *sandbox.Sandbox {
		t.Helper()
		sb, err := client.Create(t.Context(), sandbox.WithTemplate(name))
		must.Do(t, err)
		return sb
	}
	const look, want = "pwd; cat made; echo $OF $PATH; ls /bin/tac 2>/dev/null || echo gone; id -u", "/srv\nbuilt\nthe-image /more:/opt/bin:/bin\ngone\n0"
	with(func(_ *local.Cloud, client *sandbox.Client) {
		log := new(strings.Builder)
		d := template.FromImage(reference, nil).Run("echo built >made; rm /bin/tac", nil).Env(map[string]string{"PATH": "/more:$PATH"})
		built, err := template.Build(t.Context(), client.Templates, "made", d, &template.BuildParams{Log: func(e api.BuildLogEntry) { log.WriteString(e.Message + "\n") }})
		if err != nil {
			t.Fatalf("%v\n%s", err, log)
		}
		if !strings.Contains(log.String(), "layer 1 of 1 is handed over") || !strings.Contains(log.String(), "FROM "+reference+" "+id) {
			t.Errorf("the log of the build does not have the progress:\n%s", log)
		}
		sb := started(client, built.Name)
		if got := sandboxtest.Run(t, sb, look); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		sandboxtest.Run(t, sb, "echo mine >>made")
		taken, err := sb.Snapshot(t.Context(), nil)
		must.Do(t, err)
		snapshot = taken.ID
		must.Do(t, sb.Kill(t.Context()))
		must.Do(t, client.Templates.Delete(t.Context(), built.TemplateID))
	})
	if left() == "" {
		t.Fatal("the image is gone that a snapshot stands on")
	}
	with(func(_ *local.Cloud, client *sandbox.Client) {
		sb := started(client, snapshot)
		if got := sandboxtest.Run(t, sb, look); got != strings.Replace(want, "built", "built\nmine", 1) {
			t.Errorf("of the snapshot, in another cloud: got %q", got)
		}
		must.Do(t, sb.Kill(t.Context()))
		must.Do(t, client.Snapshots.Delete(t.Context(), snapshot))
	})
	if left() == "" {
		t.Fatal("the image is gone that a cached step stands on")
	}
	with(func(cloud *local.Cloud, _ *sandbox.Client) { emptyCache(t, cloud) })
	if got := left(); got != "" {
		t.Errorf("the daemon still has %s, and nothing stands on it", got)
	}
}

// TestDockerDockerfile builds a Dockerfile of two stages, one of them on nothing, for a user of
// the image: steps and sandboxes run as the last USER, and COPY works as root whoever that is.
func TestDockerDockerfile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	reference, _ := savedImage(t, dir, dockertest.Bare, "USER nobody", "WORKDIR /tmp")
	cloud := sandboxtest.New(t, append(dockerOptions(t, local.DockerParams{}), local.WithImageDir(dir))...)
	client, err := sandbox.NewClient(cloud.Option())
	must.Do(t, err)
	defer client.Close()
	must.Do(t, os.WriteFile(filepath.Join(dir, "file"), []byte("of the host\n"), 0o644))
	file := func(text string) template.Definition {
		return template.FromDockerfile(strings.NewReader(strings.ReplaceAll(text, "IMAGE", reference)), nil)
	}
	build := func(name string, d template.Definition) string {
		t.Helper()
		log := new(strings.Builder)
		built, err := template.Build(t.Context(), client.Templates, name, d, &template.BuildParams{Dir: dir, Ignore: []string{"*.tar"}, Log: func(e api.BuildLogEntry) { log.WriteString(e.Message + "\n") }})
		if err != nil {
			t.Fatalf("%v\n%s", err, log)
		}
		return built.Name
	}
	made := build("made", file(`FROM IMAGE AS made
USER nobody
RUN id -u >/tmp/first
USER root
RUN echo kept >/kept; chmod 600 /kept
FROM IMAGE
COPY --from=made /kept /tmp/first /srv/
COPY file /srv/
COPY --chown=12:34 file /srv/given
RUN rm /bin/tac
USER app
WORKDIR /work/here
RUN id -un >mine; echo "$HOME $PWD" >>mine`))
	sb := cloud.Create(t, sandbox.WithTemplate(made))
	const look = "id -un; pwd; cat mine /srv/first; ls -ln /srv | awk '{print $1, $3, $4, $9}' | grep -v total; cat /srv/kept 2>/dev/null || echo closed; ls /bin/tac 2>/dev/null || echo gone"
	const want = "app\n/work/here\napp\n/home/app /work/here\n65534\n-rw-r--r-- 0 0 file\n-rw-r--r-- 65534 65534 first\n-rw-r--r-- 12 34 given\n-rw------- 0 0 kept\nclosed\ngone"
	if got := sandboxtest.Run(t, sb, look); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := sandboxtest.Run(t, cloud.Create(t, sandbox.WithTemplate(build("plain", template.FromImage(reference, nil).Run("id -u >mine", nil)))), "cat mine; id -u; pwd"); got != "65534\n65534\n/tmp" {
		t.Errorf("as the user of the image: got %q", got)
	}
	for range 2 { // the second one takes the image that the first one fetched
		if got := sandboxtest.Run(t, cloud.Create(t, sandbox.WithImage(reference)), "id -u; pwd"); got != "65534\n/tmp" {
			t.Errorf("without a template: got %q", got)
		}
	}
	empty := build("empty", file("FROM IMAGE AS tools\nFROM scratch\nCOPY --from=tools /bin/busybox /bin/sh\nRUN echo works >/made"))
	if got := sandboxtest.Run(t, cloud.Create(t, sandbox.WithTemplate(empty)), "read line </made; echo $line; set -- /*; echo $*"); !strings.HasPrefix(got, "works\n/bin ") || strings.Contains(got, "usr") {
		t.Errorf("on nothing: got %q", got)
	}
}

// TestDockerImageMoves checks that a cached step is of the present default image, not of an
// earlier image of the same name.
func TestDockerImageMoves(t *testing.T) {
	t.Parallel()
	const moving = "e2bctl-test:moving"
	d := dockertest.Shared(t)
	d.Docker(t, "tag", dockertest.Bare, moving)
	t.Cleanup(func() { d.Docker(t, "rmi", "--force", moving) })
	cloud := sandboxtest.New(t, local.WithEngine(local.EngineDocker), local.WithBinary(dockertest.Program(t)), local.WithDocker(local.DockerParams{Host: d.Host(), Image: moving}))
	client, err := sandbox.NewClient(cloud.Option())
	must.Do(t, err)
	defer client.Close()
	for _, want := range []string{"first", "cached", "second"} {
		if want == "second" {
			made := d.Docker(t, "create", dockertest.Bare, "true")
			d.Docker(t, "commit", "--change", "ENV WHICH=second", made, moving)
			d.Docker(t, "rm", made)
		}
		var log strings.Builder
		built, err := template.Build(t.Context(), client.Templates, "made", template.FromBase().Run(`echo ${WHICH:-first} >/which`, nil), &template.BuildParams{Log: func(e api.BuildLogEntry) { log.WriteString(e.Message + "\n") }})
		if err != nil {
			t.Fatalf("%v\n%s", err, &log)
		}
		if got := strings.Contains(log.String(), "CACHED"); got != (want == "cached") {
			t.Errorf("%s: the step is from the cache: %v\n%s", want, got, &log)
		}
		if want == "cached" {
			want = "first"
		}
		if got := sandboxtest.Run(t, cloud.Create(t, sandbox.WithTemplate(built.Name)), "cat /which"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestDockerUserOfImage checks that, where DockerParams.User is set, a template may name that user
// and no other: if its image or a step does, the error says which user all containers have.
func TestDockerUserOfImage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	reference, _ := savedImage(t, dir, dockertest.Bare, "USER 12:34")
	cloud := sandboxtest.New(t, append(dockerOptions(t, local.DockerParams{User: "nobody"}), local.WithImageDir(dir))...)
	client, err := sandbox.NewClient(cloud.Option())
	must.Do(t, err)
	defer client.Close()
	from := template.FromImage(reference, nil)
	for name, c := range map[string]struct {
		made template.Definition
		want string
	}{
		"image":  {from.Run("id", nil), "all processes of its container are 65534:"},
		"step":   {from.User("app"), "USER 'app': not supported by the docker engine: all its containers have the user nobody of local.DockerParams.User"},
		"nobody": {from.User("nobody").Run("id -u >/tmp/mine", nil), ""},
	} {
		built, err := template.Build(t.Context(), client.Templates, name, c.made, nil)
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "DockerParams.User") {
				t.Errorf("%s: got %v, want %q and what to change", name, err, c.want)
			}
			continue
		}
		must.Do(t, err)
		if got := sandboxtest.Run(t, cloud.Create(t, sandbox.WithTemplate(built.Name)), "cat /tmp/mine; id -u"); got != "65534\n65534" {
			t.Errorf("%s: got %q", name, got)
		}
	}
}
