//go:build linux

package cloud

import (
	"archive/tar"
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/e2bctl/e2bctl/internal/clienttest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/imagetest"
	"github.com/e2bctl/e2bctl/internal/cloud/envdclient"
	"github.com/e2bctl/e2bctl/internal/cloud/image"
	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/must"
)

// tarLayer returns a layer of an image. It contains files below dir, unless dir is "", and the
// entries in more.
func tarLayer(t *testing.T, dir string, more ...tar.Header) v1.Layer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if dir != "" {
		must.Do(t, w.AddFS(os.DirFS(dir)))
	}
	for _, h := range more {
		h.ModTime = time.Unix(1e9, 0)
		must.Do(t, w.WriteHeader(&h))
	}
	must.Do(t, w.Close())
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
	must.Do(t, err)
	return l
}

// pushImage pushes an image to a registry, and returns its reference.
func pushImage(t *testing.T, layers ...v1.Layer) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	img, err := mutate.AppendLayers(empty.Image, layers...)
	must.Do(t, err)
	config, err := img.ConfigFile()
	if err == nil {
		config = config.DeepCopy()
		config.OS, config.Architecture = "linux", runtime.GOARCH
		img, err = mutate.ConfigFile(img, config)
	}
	must.Do(t, err)
	ref, err := name.ParseReference(strings.TrimPrefix(server.URL, "http://") + "/test:1")
	must.Do(t, err)
	must.Do(t, remote.Write(ref, img, remote.WithTransport(clienttest.New(t).Transport)))
	return ref.String()
}

// TestPulledImage checks that programs in a sandbox see a pulled image as it is in the
// registry: links, removals, modes, owners and attributes.
func TestPulledImage(t *testing.T) {
	t.Parallel()
	c := startImages(t)
	root := t.TempDir()
	must.Do(t, imagetest.Busybox(t, root))
	must.Do(t, writeFiles(root, map[string]string{"etc/passwd": "root:x:0:0::/root:/bin/sh\nweb:x:33:33::/srv:/bin/sh\n", "etc/group": "root:x:0:\nweb:x:33:\n", "srv/removed": "", "srv/all/removed": "", "usr/lib/one": "1"}))
	dir := tar.Header{Typeflag: tar.TypeDir, Mode: 0o1777}
	named := func(name string, change func(h *tar.Header)) tar.Header {
		h := tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}
		if change != nil {
			change(&h)
		}
		return h
	}
	reference := pushImage(t,
		tarLayer(t, root, named("tmp/", func(h *tar.Header) { *h = dir; h.Name = "tmp/" }), named("lib", func(h *tar.Header) { h.Typeflag, h.Linkname = tar.TypeSymlink, "usr/lib" })),
		tarLayer(t, "", named("srv/.wh.removed", nil), named("srv/all/.wh..wh..opq", nil), named("srv/all/added", func(h *tar.Header) { h.Uid, h.Gid, h.Mode = 33, 33, 0o640 }),
			named("tmp/x", nil), named("lib/two", nil), named("srv/passwd", func(h *tar.Header) { h.Typeflag, h.Linkname = tar.TypeLink, "etc/passwd" })),
	)
	s := store.Temporary(filepath.Join(t.TempDir(), "state"))
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	set := layers.Open(layers.Options{Store: s, Sharing: func() layers.Sharing { return sharing{c.Cloud} }})
	puller, err := image.Open(image.Options{Store: s, Layers: set, Unpack: c.ownEngine().UnpackTar})
	must.Do(t, err)
	t.Cleanup(puller.Close)
	img, err := puller.Pull(t.Context(), reference, nil, nil)
	must.Do(t, err)
	dirs, err := set.Hold(img.Layers...)
	must.Do(t, err)
	sandbox, err := c.launchImage(t, dirs, nil)
	must.Do(t, err)
	got, err := output(t, sandbox, envdclient.Command{Args: []string{"/bin/sh", "-c", "stat -c '%n %a %u:%g' /tmp /srv/all/added /lib/two; ls /srv /srv/all /usr/lib; head -n 1 /srv/passwd"}, User: "root"})
	want := "/tmp 1777 0:0\n/srv/all/added 640 33:33\n/lib/two 644 0:0\n/srv:\nall\npasswd\n\n/srv/all:\nadded\n\n/usr/lib:\none\ntwo\nroot:x:0:0::/root:/bin/sh\n"
	if c.ids == 1 {
		want = strings.Replace(want, "33:33", "0:0", 1)
	}
	if err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}
