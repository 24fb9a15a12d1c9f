package image

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
)

// writeArchive writes images in the format of docker save.
func writeArchive(t testing.TB, path string, images map[string]v1.Image) {
	t.Helper()
	all := map[name.Tag]v1.Image{}
	for tag, img := range images {
		ref, err := name.NewTag(tag)
		must.Do(t, err)
		all[ref] = img
	}
	must.Do(t, tarball.MultiWriteToFile(path, all))
}

func writeLayout(t testing.TB, dir string, tags map[string]v1.Image) {
	t.Helper()
	to, err := layout.Write(dir, empty.Index)
	must.Do(t, err)
	for tag, img := range tags {
		must.Do(t, to.AppendImage(img, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag}), layout.WithPlatform(platform)))
	}
}

// TestFiles checks that images are read from archives and layouts in allowed directories, and from
// no other file.
func TestFiles(t *testing.T) {
	t.Parallel()
	allowed, outside := t.TempDir(), t.TempDir()
	w := newWorld(t, func(_ *world, o *Options) { o.Archives = []string{"/nowhere", allowed} })
	one := imageOf(t, layerOf(t, types.OCILayer, "a", "1"), layerOf(t, types.OCILayer, "b", "2"))
	two := imageOf(t, layerOf(t, types.OCILayer, "a", "3"))
	at := func(name string) string { return filepath.Join(allowed, name) }
	writeArchive(t, at("one.tar"), map[string]v1.Image{"docker.io/library/one:latest": one})
	writeArchive(t, at("both.tar"), map[string]v1.Image{"localhost:1/one:latest": one, "localhost:1/two:2": two})
	writeArchive(t, filepath.Join(outside, "one.tar"), map[string]v1.Image{"localhost:1/one:latest": one})
	writeLayout(t, at("one"), map[string]v1.Image{"latest": one})
	writeLayout(t, at("both"), map[string]v1.Image{"one": one, "two": two})
	config, err := one.ConfigName()
	must.Do(t, err)
	for ref, want := range map[string]struct{ digest, files string }{
		"docker-archive:" + at("one.tar"):                         {config.String(), "a=1 b=2"},
		"docker-archive:" + at("both.tar:localhost:1/one:latest"): {config.String(), "a=1 b=2"},
		"oci:" + at("one"):                                        {digestOf(t, one), "a=1 b=2"},
		"oci:" + at("both:two"):                                   {digestOf(t, two), "a=3"},
	} {
		img, err := w.Pull(t.Context(), ref, nil, nil)
		if err != nil {
			t.Errorf("%s: %v", ref, err)
			continue
		}
		if got := strings.Join(w.files(t, img.Layers), " "); got != want.files || img.Digest != want.digest {
			t.Errorf("%s: got %s, %s, want %+v", ref, got, img.Digest, want)
		}
	}
	if n := len(w.left(t)); n != 3 {
		t.Errorf("got %d layers, want those of all images once", n)
	}
	must.Do(t, unix.Mkfifo(at("fifo"), 0o600))
	for name, target := range map[string]string{"link.tar": filepath.Join(outside, "one.tar"), "up.tar": "../" + filepath.Base(outside) + "/one.tar"} {
		must.Do(t, os.Symlink(target, at(name)))
	}
	must.Do(t, os.WriteFile(at("text"), []byte(strings.Repeat("text", 1000)), 0o600))
	three := imageOf(t, layerOf(t, types.OCILayer, "a", "4"), layerOf(t, types.OCILayer, "b", "5"))
	all, err := three.Layers()
	must.Do(t, err)
	digest, err := all[1].Digest()
	must.Do(t, err)
	blob := filepath.Join("blobs", "sha256", digest.Hex)
	for name, damage := range map[string]func(text []byte){
		"damaged":          func(text []byte) { text[len(text)-1] ^= 1 },
		"damaged-head":     func(text []byte) { text[2] ^= 1 }, // the compression's method
		"damaged-contents": func(text []byte) { text[len(text)/2] ^= 1 },
	} {
		writeLayout(t, at(name), map[string]v1.Image{"latest": three})
		text, err := os.ReadFile(filepath.Join(at(name), blob))
		must.Do(t, err)
		damage(text)
		must.Do(t, os.WriteFile(filepath.Join(at(name), blob), text, 0o600))
	}
	writeLayout(t, at("linked"), map[string]v1.Image{"latest": three})
	must.Do(t, os.Remove(filepath.Join(at("linked"), blob)))
	must.Do(t, os.Symlink("/etc/passwd", filepath.Join(at("linked"), blob)))
	w = newWorld(t, func(_ *world, o *Options) { o.Archives = []string{"/nowhere", allowed} }) // with an empty cache
	for ref, want := range map[string]string{
		"docker-archive:" + filepath.Join(outside, "one.tar"):           "may not be read from " + outside,
		"docker-archive:" + at("../"+filepath.Base(outside)+"/one.tar"): "may not be read from",
		"docker-archive:one.tar":                                        "not an absolute path",
		"docker-archive:" + at("link.tar"):                              "escapes from parent",
		"docker-archive:" + at("up.tar"):                                "escapes from parent",
		"docker-archive:" + at("fifo"):                                  "not a regular file",
		"docker-archive:" + at("nothing.tar"):                           "no such file",
		"docker-archive:" + at("text"):                                  "not an archive of docker save",
		"docker-archive:" + at("both.tar"):                              "it has 2 images",
		"docker-archive:" + at("one.tar:three"):                         `it has no image "three"`,
		"oci:/etc":                                                      "may not be read from /",
		"oci:" + at("both"):                                             "<nil>", // the first for this machine
		"oci:" + at("both:three"):                                       `it has no tag "three"`,
		"oci:" + at("damaged"):                                          "its digest is",
		"oci:" + at("damaged-head"):                                     "its digest is",
		"oci:" + at("damaged-contents"):                                 "its digest is",
		"oci:" + at("linked"):                                           "escapes from parent",
		"oci:" + at("text"):                                             "not a directory",
	} {
		_, err := w.Pull(t.Context(), ref, nil, nil)
		if got := fmt.Sprint(err); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %q", ref, got, want)
		}
	}
	none := newWorld(t, nil)
	if _, err := none.Pull(t.Context(), "docker-archive:"+at("one.tar"), nil, nil); err == nil || !strings.Contains(err.Error(), "may not be read") {
		t.Errorf("where nothing is allowed: got %v", err)
	}
}

// TestArchiveLinks checks that links in an archive, as in older archives, lead to files of the
// archive, and that a circle of links is an error.
func TestArchiveLinks(t *testing.T) {
	t.Parallel()
	a := &archive{parts: map[string]part{
		"1/layer.tar": {link: "2/layer.tar"}, "2/layer.tar": {at: 512, size: 3}, "x": {link: "y"}, "y": {link: "x"}, "z": {link: "../../etc/passwd"},
	}}
	if got, err := a.part("./1/layer.tar"); err != nil || got.at != 512 {
		t.Errorf("got %+v, %v, want the other file", got, err)
	}
	for _, name := range []string{"x", "z", "none", "../1/layer.tar"} {
		if got, err := a.part(name); err == nil {
			t.Errorf("%s: got %+v, want an error", name, got)
		}
	}
}

// TestLayoutIsReadInPlace checks that the layers of a directory are read where they are, and that such an image
// is looked up each time.
func TestLayoutIsReadInPlace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := newWorld(t, func(_ *world, o *Options) { o.Archives = []string{dir} })
	writeLayout(t, dir, map[string]v1.Image{"one": imageOf(t, layerOf(t, types.OCILayer, "a", "1"))})
	f, err := w.find(t.Context(), platform, "oci:"+dir+":one", nil, nil)
	must.Do(t, err)
	if !f.local || f.asked != "" {
		t.Errorf("got local %v and the digest %q, want an image of this machine without a requested digest", f.local, f.asked)
	}
	f.close()
}
