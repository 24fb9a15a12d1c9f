//go:build linux

package image

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/e2bctl/e2bctl/internal/clienttest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestPlatforms checks that Pull chooses the image for this machine from an index, and Give the
// image for the keeper's machine. If the index has no such image, the error lists the platforms in
// the index.
func TestPlatforms(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	foreign := func(os, arch string) v1.Image {
		img := imageOf(t, layerOf(t, types.OCILayer, "a", arch))
		config, err := img.ConfigFile()
		if err == nil {
			config = config.DeepCopy()
			config.OS, config.Architecture = os, arch
			img, err = mutate.ConfigFile(img, config)
		}
		must.Do(t, err)
		return img
	}
	add := func(img v1.Image, os, arch string) mutate.IndexAddendum {
		return mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: os, Architecture: arch}}}
	}
	mine := imageOf(t, layerOf(t, types.OCILayer, "a", "mine"))
	push := func(path string, index v1.ImageIndex) string {
		ref, err := name.ParseReference(w.host() + "/" + path)
		if err == nil {
			err = remote.WriteIndex(ref, index, remote.WithTransport(clienttest.New(t).Transport))
		}
		must.Do(t, err)
		return ref.String()
	}
	others := []mutate.IndexAddendum{add(foreign("linux", "s390x"), "linux", "s390x"), add(foreign("windows", platform.Architecture), "windows", platform.Architecture), add(foreign("unknown", "unknown"), "unknown", "unknown")}
	for range 2 { // the second time everything is here already
		img, err := w.Pull(t.Context(), push("index", mutate.AppendManifests(empty.Index, append(others, add(mine, platform.OS, platform.Architecture))...)), nil, nil)
		must.Do(t, err)
		if img.Digest != digestOf(t, mine) || !slices.Equal(w.files(t, img.Layers), []string{"a=mine"}) {
			t.Errorf("got %+v, want %s", img, digestOf(t, mine))
		}
	}
	for ref, want := range map[string]string{
		push("others", mutate.AppendManifests(empty.Index, others...)): "it is for linux/s390x, windows/" + platform.Architecture + ", and sandboxes here are " + platform.String(),
		w.push(t, "other", foreign("linux", "s390x")):                  "it is for linux/s390x, and sandboxes here are " + platform.String(),
		push("none", empty.Index):                                      "no image for " + platform.String(),
	} {
		if _, err := w.Pull(t.Context(), ref, nil, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", ref, err, want)
		}
	}
	k := &keeper{architecture: "s390x"}
	theirs := digestOf(t, others[0].Add.(v1.Image))
	img, err := w.Give(t.Context(), push("index", mutate.AppendManifests(empty.Index, append(others, add(mine, platform.OS, platform.Architecture))...)), nil, k, nil)
	if err != nil || img.Digest != theirs {
		t.Fatalf("given to a keeper on another processor: got %+v, %v, want %s", img, err, theirs)
	}
	if config := k.all[theirs]["config.json"]; !strings.Contains(config, `"architecture":"s390x"`) {
		t.Errorf("given to a keeper on another processor: got the configuration %s, want that it is for s390x", config)
	}
	if _, err := w.Give(t.Context(), w.push(t, "mine", mine), nil, k, nil); err == nil || !strings.Contains(err.Error(), "it is for "+platform.String()+", and sandboxes here are linux/s390x") {
		t.Errorf("an image for this machine: got %v, want that the keeper runs others", err)
	}
}
