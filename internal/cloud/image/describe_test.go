package image

import (
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestDescribe checks which layers of an image are accepted, and that layers are told apart by all
// layers below them.
func TestDescribe(t *testing.T) {
	t.Parallel()
	hash := func(digit string) v1.Hash { return v1.Hash{Algorithm: "sha256", Hex: strings.Repeat(digit, 64)} }
	layer := v1.Descriptor{MediaType: types.DockerLayer, Digest: hash("a"), Size: -1}
	many := func(n int) (all []v1.Descriptor, ids []v1.Hash) {
		for range n {
			all, ids = append(all, layer), append(ids, hash("1"))
		}
		return all, ids
	}
	most, mostIDs := many(maxLayers)
	more, moreIDs := many(maxLayers + 1)
	on := v1.Platform{OS: "linux", Architecture: "amd64"}
	for name, tt := range map[string]struct {
		layers []v1.Descriptor
		ids    []v1.Hash
		err    string // text of the error
	}{
		"two":                {layers: []v1.Descriptor{layer, {Digest: hash("b"), Size: 5}}, ids: []v1.Hash{hash("1"), hash("2")}},
		"as many as allowed": {layers: most, ids: mostIDs},
		"one too many":       {layers: more, ids: moreIDs, err: "more than"},
		"none":               {err: "no layers"},
		"another number":     {layers: []v1.Descriptor{layer}, err: "has 1 layers, and its configuration 0"},
		"elsewhere":          {layers: []v1.Descriptor{{MediaType: types.DockerLayer, URLs: []string{"https://x.test"}}}, ids: []v1.Hash{hash("1")}, err: "elsewhere"},
		"foreign":            {layers: []v1.Descriptor{{MediaType: types.DockerForeignLayer}}, ids: []v1.Hash{hash("1")}, err: "elsewhere"},
		"no layer":           {layers: []v1.Descriptor{{MediaType: types.DockerConfigJSON}}, ids: []v1.Hash{hash("1")}, err: "not supported"},
		"another digest":     {layers: []v1.Descriptor{layer}, ids: []v1.Hash{{Algorithm: "sha512", Hex: strings.Repeat("1", 128)}}, err: `of the kind "sha512"`},
		"in the second":      {layers: []v1.Descriptor{layer, layer}, ids: []v1.Hash{hash("1"), {Algorithm: "md5", Hex: "1"}}, err: "its layer 2"},
	} {
		f := &found{platform: on}
		err := f.describe(&v1.ConfigFile{OS: on.OS, Architecture: on.Architecture, RootFS: v1.RootFS{DiffIDs: tt.ids}}, tt.layers)
		if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: got error %v, want %q", name, err, tt.err)
		}
		if err == nil && len(f.blobs) != len(tt.layers) {
			t.Errorf("%s: got %d layers, want %d", name, len(f.blobs), len(tt.layers))
		}
		if name != "two" {
			continue
		}
		sum, _, err := v1.SHA256(strings.NewReader(hash("1").String() + " " + hash("2").String()))
		must.Do(t, err)
		for i, want := range []blob{{hash("a").String(), 0, hash("1"), hash("1").Hex}, {hash("b").String(), 5, hash("2"), sum.Hex}} {
			if f.blobs[i] != want {
				t.Errorf("layer %d is %+v, want %+v", i+1, f.blobs[i], want)
			}
		}
	}
}
