package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/e2bctl/e2bctl/internal/must"
)

// linkLayer returns a layer with a symbolic link.
func linkLayer(t *testing.T, name, target string) v1.Layer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	must.Do(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}))
	must.Do(t, w.Close())
	diffID, _, err := v1.SHA256(bytes.NewReader(b.Bytes()))
	must.Do(t, err)
	return compressed{static.NewLayer(b.Bytes(), types.OCIUncompressedLayer), diffID}
}

// TestHostileLayers checks images of 40 layers that lead out of the image in one of them, directly or
// through a link of a lower layer. Nothing outside changes, the error names the layer, and the layers
// below it serve the next image.
func TestHostileLayers(t *testing.T) {
	t.Parallel()
	w, outside := newWorld(t, nil), t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(outside, "kept"), []byte("text"), 0o600))
	const count = 40
	good := make([]v1.Layer, count)
	for i := range good {
		good[i] = layerOf(t, types.OCILayer, fmt.Sprint(i), "text")
	}
	good[1] = linkLayer(t, "out", outside)
	good[2] = linkLayer(t, "up", strings.Repeat("../", 50)+outside[1:])
	for name, tt := range map[string]struct {
		at         int
		file, want string
	}{
		"out of the image, in the lowest layer": {0, "../planted", "leads out of the image"},
		"out of the image, in the highest":      {count - 1, "a/../../../planted", "leads out of the image"},
		"through a link":                        {20, "out/planted", ""},
		"through a relative link":               {20, "up/planted", ""},
		"a removal through a link":              {20, "out/.wh.kept", ""},
		"all of a directory through a link":     {20, "up/.wh..wh..opq", ""},
	} {
		all := slices.Clone(good)
		all[tt.at] = layerOf(t, types.OCIUncompressedLayer, tt.file, "")
		img, err := w.Pull(t.Context(), w.push(t, "hostile", imageOf(t, all...)), nil, nil)
		if which := fmt.Sprintf("layer %d of %d ", tt.at+1, count); tt.want == "" {
			must.Do(t, err)
			w.layers.Release(img.Layers...)
		} else if err == nil || !strings.Contains(err.Error(), which) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q with %q", name, err, which, tt.want)
		}
		w.left(t)
		text, err := os.ReadFile(filepath.Join(outside, "kept"))
		if entries, _ := os.ReadDir(outside); err != nil || string(text) != "text" || len(entries) != 1 {
			t.Errorf("%s: it changed a directory outside: %v, %q, %v", name, entries, text, err)
		}
	}
	ref := w.push(t, "good", imageOf(t, good...))
	img, err := w.Pull(t.Context(), ref, nil, nil)
	must.Do(t, err)
	if len(img.Layers) != 1 {
		t.Errorf("got %q, want one merged layer", img.Layers)
	}
	if fetched := blobs(w.asked()); len(fetched) != 2 {
		t.Errorf("got %q fetched, want the configuration and the layer that was hostile before", fetched)
	}
}
