//go:build linux

package e2e

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestSandboxOfAnImage creates sandboxes of an image that no template was built from.
func TestSandboxOfAnImage(t *testing.T) {
	t.Parallel()
	images := newRegistry(t, "")
	busybox := busyboxLayer(t)
	images.push(t, "library/small:1", v1.Config{Env: []string{"PATH=/bin", "GREETING=hello"}, WorkingDir: "/srv", User: "app"}, nil, busybox, archiveOf(t, false, "srv/", "", "srv/version", "one"))
	digest := images.push(t, "team/tool:Two", v1.Config{Env: []string{"PATH=/bin"}}, nil, busybox, archiveOf(t, false, "version", "two"))
	var manifests, blobs atomic.Int32
	counted := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(r.URL.Path, "/manifests/"):
			manifests.Add(1)
		case strings.Contains(r.URL.Path, "/blobs/"):
			blobs.Add(1)
		}
		images.Config.Handler.ServeHTTP(w, r)
	}))
	t.Cleanup(counted.Close)
	cloud := sandboxtest.New(t, local.WithWarm(0), local.WithRegistryMirror("docker.io", counted.URL))
	client, err := sandbox.NewClient(cloud.Option())
	must.Do(t, err)
	t.Cleanup(func() { client.Close() })
	// run runs a command in a new sandbox, and returns its output.
	run := func(command string, opts ...sandbox.CreateOption) (string, *sandbox.Info, error) {
		sb, err := client.Create(t.Context(), opts...)
		if err != nil {
			return "", nil, err
		}
		defer sb.Close()
		info, err := sb.Info(t.Context())
		if err != nil {
			return "", nil, err
		}
		ran, err := sb.Commands.Run(t.Context(), command, nil)
		if err != nil {
			return "", nil, err
		}
		return ran.Stdout, info, nil
	}
	check := func(what, text, want string, info *sandbox.Info, image string, err error) {
		t.Helper()
		if err != nil || text != want || info.Image != image || info.TemplateID != image {
			t.Errorf("%s: it printed %q, is %+v, and %v, want %q of %s", what, text, info, err, want, image)
		}
	}

	// Eight at once share one fetch.
	var group errgroup.Group
	for range 8 {
		group.Go(func() error {
			text, info, err := run("cat version; echo \" $GREETING $(id -un) $PWD\"", sandbox.WithImage("small:1"))
			check("at once", text, "one hello app /srv\n", info, "small:1", err)
			return nil
		})
	}
	must.Do(t, group.Wait())
	if got := blobs.Load(); got != 3 { // two layers and the configuration
		t.Errorf("eight creates fetched %d blobs, want 3", got)
	}
	asked := manifests.Load()
	text, info, err := run("cat version", sandbox.WithImage("small:1"))
	check("again", text, "one", info, "small:1", err)
	if got := manifests.Load(); got != asked {
		t.Errorf("the next create asked the registry %d times, want none", got-asked)
	}

	// Clients without an option for images name one in place of the template.
	for _, name := range []string{"docker.io/team/tool:Two", "docker.io/team/tool@" + digest.String()} {
		text, info, err = run("cat /version", sandbox.WithTemplate(name))
		check("as a template", text, "two", info, name, err)
	}
	for _, name := range []string{"localhost/tool", "team/tool:two", "tool", "a.b"} {
		if _, _, err := run("true", sandbox.WithTemplate(name)); err == nil || strings.Contains(err.Error(), "registry") {
			t.Errorf("the template %s: got %v, want that there is no such template", name, err)
		}
	}
	if _, _, err := run("true", sandbox.WithImage("team/none:1")); !errors.Is(err, api.ErrNotFound) || !strings.Contains(err.Error(), "the registry") {
		t.Errorf("an image that is not there: got %v, want %v and the registry", err, api.ErrNotFound)
	}
	if _, _, err := run("true", sandbox.WithImage("not an image")); !errors.Is(err, api.ErrInvalidArgument) {
		t.Errorf("no name of an image: got %v, want %v", err, api.ErrInvalidArgument)
	}

	// Sandboxes of a kept image need no registry.
	counted.Close()
	text, info, err = run("cat version", sandbox.WithImage("small:1"))
	check("without a registry", text, "one", info, "small:1", err)
	if _, _, err := run("true", sandbox.WithImage("team/none:2")); err == nil || !strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("without a registry: got %v, want that it cannot be reached", err)
	}
}
