package image

import (
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestDefaults checks that every option except the stores and Unpack may be left out.
func TestDefaults(t *testing.T) { //nolint:paralleltest // it sets an environment variable
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	w := newWorld(t, func(_ *world, o *Options) { *o = Options{Store: o.Store, Layers: o.Layers, Unpack: o.Unpack} })
	if w.options.Keychain != authn.DefaultKeychain || w.options.MaxBytes != DefaultMaxBytes {
		t.Errorf("got the keychain %v and at most %d bytes, want Docker's keychain and %d", w.options.Keychain, w.options.MaxBytes, int64(DefaultMaxBytes))
	}
	pulled, err := w.Pull(t.Context(), w.push(t, "some/image:tag", imageOf(t, layerOf(t, types.OCILayer, "a", "1"))), nil, nil)
	must.Do(t, err)
	w.layers.Release(pulled.Layers...)
}
