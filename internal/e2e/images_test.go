//go:build linux

package e2e

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/pinned"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
	"github.com/e2bctl/e2bctl/sandbox/template"
)

// imageRegistry is a registry of this process.
type imageRegistry struct {
	*httptest.Server
	host string
}

// newRegistry starts a registry. With a password it refuses requests without it.
func newRegistry(t *testing.T, password string) *imageRegistry {
	t.Helper()
	serve := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, given, _ := r.BasicAuth(); given != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		serve.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return &imageRegistry{server, strings.TrimPrefix(server.URL, "http://")}
}

// push puts an image there, whose layers are archives.
func (r *imageRegistry) push(t *testing.T, reference string, config v1.Config, options []remote.Option, layers ...[]byte) v1.Hash {
	t.Helper()
	image, err := mutate.Config(empty.Image, config)
	for _, text := range layers {
		var layer v1.Layer
		if err == nil {
			layer, err = tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil })
		}
		if err == nil {
			image, err = mutate.AppendLayers(image, layer)
		}
	}
	if err == nil {
		var file *v1.ConfigFile
		if file, err = image.ConfigFile(); err == nil {
			file = file.DeepCopy()
			file.OS, file.Architecture = "linux", runtime.GOARCH
			image, err = mutate.ConfigFile(image, file)
		}
	}
	must.Do(t, err)
	to, err := name.ParseReference(r.host+"/"+reference, name.Insecure)
	if err == nil {
		err = remote.Write(to, image, options...)
	}
	must.Do(t, err)
	digest, err := image.Digest()
	must.Do(t, err)
	return digest
}

// busyboxLayer returns a layer with busybox under its names, and nothing else: neither bash
// nor Python, nor a C library.
func busyboxLayer(t *testing.T) []byte {
	t.Helper()
	path := pinned.Program(t, "busybox", "busybox-static")
	program, err := os.ReadFile(path)
	must.Do(t, err)
	names, err := exec.CommandContext(t.Context(), path, "--list").Output()
	must.Do(t, err)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(h *tar.Header, text []byte) {
		h.Size = int64(len(text))
		err = errors.Join(err, w.WriteHeader(h))
		_, failed := w.Write(text)
		err = errors.Join(err, failed)
	}
	for _, dir := range []string{"bin/", "etc/", "root/"} {
		add(&tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	}
	add(&tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}, nil)
	add(&tar.Header{Name: "bin/busybox", Mode: 0o755}, program)
	for name := range strings.FieldsSeq(string(names)) {
		if name != "busybox" {
			add(&tar.Header{Name: "bin/" + name, Typeflag: tar.TypeSymlink, Linkname: "busybox", Mode: 0o777}, nil)
		}
	}
	add(&tar.Header{Name: "etc/passwd", Mode: 0o644}, []byte("root:x:0:0:root:/root:/bin/sh\napp:x:77:78::/srv:/bin/sh\n"))
	add(&tar.Header{Name: "etc/group", Mode: 0o644}, []byte("root:x:0:\napp:x:78:\n"))
	must.Do(t, errors.Join(err, w.Close()))
	return b.Bytes()
}

// TestImage checks that a template of an image has the image's files and settings, and
// nothing of this machine. A step is done again when the image has changed.
func TestImage(t *testing.T) {
	t.Parallel()
	images := newRegistry(t, "")
	busybox := busyboxLayer(t)
	images.push(t, "library/small:1", v1.Config{Env: []string{"PATH=/opt/bin:/bin", "GREETING=hello"}, WorkingDir: "/srv", Cmd: []string{"sleep", "9"}}, nil, busybox, archiveOf(t, false, "opt/", "", "opt/version", "one"))
	cloud := sandboxtest.New(t, local.WithWarm(0), local.WithRegistryMirror("docker.io", images.URL))
	client, err := sandbox.NewClient(cloud.Option())
	must.Do(t, err)
	t.Cleanup(func() { client.Close() })
	b := &builder{client: client, dir: t.TempDir()}
	b.write(t, "file", "content\n", 0o644)
	d := template.FromImage("small:1", nil).
		User("root").
		Copy("file", "/srv/copied/", nil).
		Env(map[string]string{"MORE": "$GREETING there"}).
		Run("echo $MORE $(cat /opt/version) >/srv/made; test ! -e /usr/bin && test ! -e /bin/bash", nil).
		Workdir("/srv/deep").
		User("user")
	b.must(t, "small", d)
	if !b.said("CACHED") && !b.said("the image's own command is run in no sandbox") {
		t.Errorf("got the log %q, want it to name the image's command", b.log)
	}
	const look = `pwd; whoami; cat /srv/copied/file /srv/made; echo $PATH $GREETING; ls /`
	want := "/srv/deep\nuser\ncontent\nhello there one\n/opt/bin:/bin hello\nbin\ndev\netc\nhome\nopt\nproc\nroot\nrun\nsrv\nsys\ntmp\n"
	if got := b.run(t, "small", look); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	b.must(t, "small", d)
	for _, line := range b.log {
		if strings.HasPrefix(line, "[builder ") {
			t.Errorf("the second time %q is not from the cache", line)
		}
	}
	// The tag moves.
	images.push(t, "library/small:1", v1.Config{Env: []string{"PATH=/bin", "GREETING=bye"}}, nil, busybox, archiveOf(t, false, "opt/", "", "opt/version", "two"))
	b.must(t, "small", d)
	if got, want := b.run(t, "small", `cat /srv/made; echo $PATH`), "bye there two\n/bin\n"; got != want {
		t.Errorf("after the tag has moved: got %q, want %q", got, want)
	}
	if b.said("CACHED [builder") {
		t.Errorf("after the tag has moved: got the log %q, want nothing from the cache", b.log)
	}
}

// TestImageStages checks that a program can be built in one image and copied to one that
// has nothing else, neither a shell nor tar. The accounts of an image are available, and so
// are ids.
func TestImageStages(t *testing.T) {
	t.Parallel()
	images := newRegistry(t, "")
	images.push(t, "tools/build", v1.Config{Env: []string{"PATH=/bin"}}, nil, busyboxLayer(t))
	images.push(t, "tools/empty", v1.Config{User: "7:8"}, nil, archiveOf(t, false, "only", "file"))
	cloud := sandboxtest.New(t, local.WithWarm(0))
	client, err := sandbox.NewClient(cloud.Option())
	must.Do(t, err)
	t.Cleanup(func() { client.Close() })
	b := &builder{client: client, dir: t.TempDir()}
	b.write(t, "config", "setting\n", 0o644)
	for _, last := range []string{"scratch", images.host + "/tools/empty"} {
		d := template.FromDockerfile(strings.NewReader(`
FROM `+images.host+`/tools/build AS build
WORKDIR /out
RUN cp /bin/busybox program && chmod 755 program && echo made >note
FROM `+last+`
WORKDIR /app
COPY --from=build /out/ /app/
COPY --from=`+images.host+`/tools/empty /only /app/
COPY --chmod=600 config etc/
USER root
`), nil)
		b.must(t, "small", d)
		sb, err := client.Create(t.Context(), sandbox.WithTemplate("small"))
		must.Do(t, err)
		t.Cleanup(func() { sb.Close() })
		for path, want := range map[string]string{"/app/note": "made\n", "/app/only": "file", "/app/etc/config": "setting\n"} {
			if got, err := sb.Files.ReadText(t.Context(), path, nil); got != want || err != nil {
				t.Errorf("%s of %s: got %q and error %v, want %q", path, last, got, err, want)
			}
		}
		if _, err := sb.Commands.Run(t.Context(), "true", nil); err == nil || !strings.Contains(err.Error(), "/bin/sh") {
			t.Errorf("a command line in %s: got %v, want that there is no shell", last, err)
		}
	}
}

// TestImageUsers checks that steps and sandboxes run as the user that the image names, or a
// step.
func TestImageUsers(t *testing.T) {
	t.Parallel()
	images := newRegistry(t, "")
	busybox := busyboxLayer(t)
	images.push(t, "app", v1.Config{User: "app"}, nil, busybox)
	api := buildsOf(sandboxtest.New(t, local.WithWarm(0)))
	probe := api.cloud.Create(t)
	oneID := sandboxtest.Run(t, probe, "cut -d: -f3 /etc/passwd | head -n 2 | sort -u | wc -l") == "1"
	from := images.host + "/app"
	for user, want := range map[string]string{"": "77:78 /", "1234": "1234:0 /", "1234:56": "1234:56 /", "app:root": "77:0 /", "new": "1001:1001 /"} {
		spec := buildSpec{FromImage: from}
		if user != "" {
			spec.Steps = []buildStep{{Type: "USER", Args: []string{user}}}
		}
		spec.Steps = append(spec.Steps, buildStep{Type: "RUN", Args: []string{"echo $(id -u):$(id -g) $(pwd) >/tmp/who"}})
		result := api.build(t, "users", spec)
		if oneID {
			if result.Status != "error" || !strings.Contains(result.Reason.Message, "id") {
				t.Errorf("%q: got %s %+v, want an error about ids", user, result.Status, result.Reason)
			}
			continue
		}
		if result.Status != "ready" {
			t.Errorf("%q: got %s %+v, want ready:\n%s", user, result.Status, result.Reason, strings.Join(result.Log, "\n"))
			continue
		}
		sb := api.create(t, "users")
		if got := sandboxtest.Run(t, sb, "cat /tmp/who; echo $(id -u):$(id -g) $(pwd)"); got != want+"\n"+want {
			t.Errorf("%q: got %q, want %q twice", user, got, want)
		}
	}
}

// TestImageRefused checks that an image that cannot be fetched ends the build, with the
// reason.
func TestImageRefused(t *testing.T) {
	t.Parallel()
	private := newRegistry(t, "secret")
	builds := buildsOf(sandboxtest.New(t, local.WithWarm(0)))
	private.push(t, "mine", v1.Config{}, []remote.Option{remote.WithAuth(&authn.Basic{Username: "me", Password: "secret"})}, archiveOf(t, false, "a", "a"))
	b := &builder{dir: t.TempDir()}
	var err error
	b.client, err = sandbox.NewClient(builds.cloud.Option())
	must.Do(t, err)
	t.Cleanup(func() { b.client.Close() })
	for password, want := range map[api.Key]bool{"secret": true, "wrong": false} {
		login := &template.ImageParams{Registry: &api.ImageRegistry{Username: "me", Password: password}}
		_, err := b.build(t, "private", template.FromImage(private.host+"/mine", login))
		if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "pulling the image '"+private.host+"/mine'") {
			t.Errorf("with the password %q: got %v, want %v", password, err, want)
		}
		if strings.Contains(strings.Join(b.log, "\n"), string(password)) {
			t.Errorf("the log has the password: %q", b.log)
		}
	}
	for name, tt := range map[string]struct{ image, want string }{
		"a private one":   {private.host + "/mine", "pulling the image '" + private.host + "/mine'"},
		"no such image":   {private.host + "/none", "pulling the image '" + private.host + "/none'"},
		"no reference":    {"UPPER CASE", "pulling the image 'UPPER CASE'"},
		"a file":          {"docker-archive:/etc/passwd", "pulling the image 'docker-archive:/etc/passwd'"},
		"a layout":        {"oci:/etc", "pulling the image 'oci:/etc'"},
		"nobody listens":  {"localhost:1/x", "pulling the image 'localhost:1/x'"},
		"of another name": {"e2bdev/base/x/y@sha256:0", "pulling the image"},
	} {
		result := builds.build(t, "refused", buildSpec{FromImage: tt.image})
		if result.Status != "error" || result.Reason.Step != "base" || !strings.Contains(result.Reason.Message, tt.want) {
			t.Errorf("%s: got %s %+v, want %q", name, result.Status, result.Reason, tt.want)
		}
	}
}
