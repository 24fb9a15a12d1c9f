package image

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/e2bctl/e2bctl/internal/must"
)

// keeper stores images as the files of their archives.
type keeper struct {
	architecture string                       // processor architecture; "": this machine's
	all          map[string]map[string]string // contents of files, keyed by digest and name
	fails        error                        // error of Load, which then reads nothing
	loads        int
}

func (k *keeper) Architecture() string {
	if k.architecture != "" {
		return k.architecture
	}
	return platform.Architecture
}

func (k *keeper) Has(_ context.Context, digest string) (bool, error) {
	return k.all[digest] != nil, nil
}

func (k *keeper) Name(digest string) (tag string, labels map[string]string) {
	return "localhost/kept:1", map[string]string{"of": digest}
}

func (k *keeper) Load(_ context.Context, digest string, archive io.Reader) error {
	k.loads++
	if k.fails != nil {
		return k.fails
	}
	files := map[string]string{}
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		text, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		files[h.Name] = string(text)
	}
	if k.all == nil {
		k.all = map[string]map[string]string{}
	}
	k.all[digest] = files
	return nil
}

// TestGive checks that a keeper receives the layers of an image, uncompressed, and each image only
// once. It does not receive the configuration.
func TestGive(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	files := [][]string{{"etc/a", "1"}, {"etc/.wh.a", ""}, {"etc/c", "3"}}
	img := imageOf(t, layerOf(t, types.DockerLayer, files[0]...), layerOf(t, types.OCILayerZStd, files[1]...), layerOf(t, types.OCIUncompressedLayer, files[2]...))
	ref := w.push(t, "some/image:tag", img)
	k := &keeper{}
	for _, unpacked := range []bool{false, true} { // here, too
		if unpacked {
			pulled, err := w.Pull(t.Context(), ref, nil, nil)
			must.Do(t, err)
			w.layers.Release(pulled.Layers...)
			k.all = nil
		}
		var lines []string
		got, err := w.Give(t.Context(), ref, nil, k, func(line string) { lines = append(lines, line) })
		must.Do(t, err)
		if got.Digest != digestOf(t, img) || got.Reference != ref || got.Config.User != "33:44" || len(got.Layers) != 0 {
			t.Errorf("got %+v, want what the image says", got)
		}
		if len(lines) != 7 || !strings.HasPrefix(lines[0], "layer 1 of 3: fetching ") || lines[5] != "layer 3 of 3 is handed over" {
			t.Errorf("got the progress %q", lines)
		}
	}
	given := k.all[digestOf(t, img)]
	var manifest []saved
	var config map[string]json.RawMessage
	var inner v1.ConfigFile
	err := errors.Join(json.Unmarshal([]byte(given["manifest.json"]), &manifest), json.Unmarshal([]byte(given["config.json"]), &config), json.Unmarshal([]byte(given["config.json"]), &inner))
	must.Do(t, err)
	if diff := cmp.Diff([]saved{{Config: "config.json", RepoTags: []string{"localhost/kept:1"}, Layers: []string{"0.tar", "1.tar", "2.tar"}}}, manifest); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if string(config["config"]) != `{"Labels":{"of":"`+digestOf(t, img)+`"}}` || inner.Architecture != platform.Architecture || len(inner.RootFS.DiffIDs) != 3 {
		t.Errorf("got the configuration %s", given["config.json"])
	}
	for i, name := range manifest[0].Layers {
		if given[name] != string(tarOf(t, files[i]...)) {
			t.Errorf("%s: got %q, want the layer as it is to be unpacked", name, given[name])
		}
	}
	w.asked()
	if _, err := w.Give(t.Context(), ref, nil, k, nil); err != nil || k.loads != 2 {
		t.Errorf("the third time: got %v and %d loads, want no other one", err, k.loads)
	}
	if n := len(blobs(w.asked())); n != 1 {
		t.Errorf("the third time %d blobs were fetched, want the configuration", n)
	}
	w.left(t)
}

// TestGiveNothing checks that the empty image needs no registry.
func TestGiveNothing(t *testing.T) {
	t.Parallel()
	w, k := newWorld(t, nil), &keeper{}
	got, err := w.Give(t.Context(), Scratch, nil, k, nil)
	must.Do(t, err)
	r := tar.NewReader(bytes.NewReader([]byte(k.all[got.Digest]["0.tar"])))
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("got a layer with something in it, %v", err)
	}
	if asked := w.asked(); len(asked) > 0 {
		t.Errorf("%q was asked", asked)
	}
}

// TestGiveDamaged checks that the error contains the keeper's reason, and that an archive with
// damaged layers is never complete.
func TestGiveDamaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	good := layerOf(t, types.OCILayer, "a", "1")
	other, err := layerOf(t, types.OCIUncompressedLayer, "a", "2").DiffID()
	must.Do(t, err)
	for name, tt := range map[string]struct {
		img  v1.Image
		k    keeper
		want string
	}{
		"another content": {imageOf(t, good, compressed{good, other}), keeper{}, "layer 2 of 2"},
		"a dead keeper":   {imageOf(t, good), keeper{fails: errors.New("the daemon died")}, "the daemon died"},
	} {
		_, err := w.Give(t.Context(), w.push(t, strings.ReplaceAll(name, " ", "-"), tt.img), nil, &tt.k, nil)
		if err == nil || !strings.Contains(err.Error(), tt.want) || len(tt.k.all) > 0 {
			t.Errorf("%s: got %v and %d images, want %q", name, err, len(tt.k.all), tt.want)
		}
	}
	w.left(t)
}
