package layers_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestChainHolds checks that the caller holds exactly the returned layers, each once, for any
// chain: short, too long, impossible to merge, or above a layer that no longer exists.
func TestChainHolds(t *testing.T) {
	t.Parallel()
	for _, length := range []int{layers.MaxChain - 1, layers.MaxChain, layers.MaxChain + 1} {
		for _, damage := range []string{"", "no files", "gone"} {
			dir := t.TempDir()
			_, st := open(t, dir)
			s := layers.Open(layers.Options{Store: st, Sharing: lifecycletest.Sharing})
			var below []string
			for range length - 1 {
				below = append(below, add(t, s))
			}
			dirs, err := s.Hold(below...)
			must.Do(t, err)
			s.Release(below...) // their first holder remains
			if damage == "no files" {
				must.Do(t, os.Remove(filepath.Join(dirs[0], "files")))
			}
			named, merges := below, length > layers.MaxChain
			if damage == "gone" {
				named = append([]string{"gone"}, below...)
			}
			chain, err := s.Chain(t.Context(), named, add(t, s))
			want := length
			switch {
			case damage == "gone":
				if want = 0; !errors.Is(err, layers.ErrGone) {
					t.Errorf("%d layers: got error %v, want ErrGone", length, err)
				}
			case damage == "no files" && merges:
				if want = 0; !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%d layers: got error %v, want one of the file that is not there", length, err)
				}
			case merges:
				want = 1
			}
			if len(chain) != want || (err == nil) != (want > 0) {
				t.Errorf("%d layers, %q: got %d and error %v, want %d", length, damage, len(chain), err, want)
			}
			s.Release(below...)
			s.Release(chain...)
			if all, err := st.Records(store.Layers); err != nil || len(all) != 0 {
				t.Errorf("%d layers, %q: %d are left (%v), want none", length, damage, len(all), err)
			}
		}
	}
}
