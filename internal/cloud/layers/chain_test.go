package layers_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestEachCallReturns checks that no call keeps the lock of the set. It runs before the tests that would
// wait for such a lock.
func TestEachCallReturns(t *testing.T) { //nolint:paralleltest // see above
	st, err := store.Open(t.Context(), t.TempDir())
	must.Do(t, err)
	s := layers.Open(layers.Options{Store: st, Sharing: lifecycletest.Sharing})
	write := func(dir string) error { return os.WriteFile(filepath.Join(dir, "files"), []byte("text"), 0o600) }
	var files, memory, outside string
	for _, call := range []struct {
		name string
		do   func() error
	}{
		{"Make", func() (err error) { files, err = s.Make(write); return err }},
		{"AddMemory", func() (err error) { memory, err = s.AddMemory(write); return err }},
		{"Outside", func() (err error) { outside, err = s.Outside("an image"); return err }},
		{"Outside again", func() (err error) { outside, err = s.Outside("an image"); return err }},
		{"Needs", func() error { s.Needs("an image"); s.Needs("another"); return nil }},
		{"Split", func() error { s.Split(files, memory, outside, "none"); return nil }},
		{"Hold", func() error { _, err := s.Hold(files); return err }},
		{"Hold of none", func() error { _, _ = s.Hold(files, "none"); return nil }},
		{"Use", func() error {
			b, err := s.Use(outside, files, memory)
			if err == nil {
				b.Release()
			}
			return err
		}},
		{"Use of none", func() error { _, _ = s.Use("none"); return nil }},
		{"Chain", func() error { _, err := s.Chain(t.Context(), []string{outside}, files); return err }},
		{"Chain of many", func() error {
			chain, err := s.Chain(t.Context(), slices.Repeat([]string{files}, layers.MaxChain), add(t, s))
			s.Release(chain...)
			return err
		}},
		{"Release", func() error { s.Release(files); return nil }},
		{"Sweep", func() error { s.Sweep(); return nil }},
		{"Keep", func() error { s.Keep(); return nil }},
		{"Sweep of kept ones", func() error { s.Sweep(); return nil }},
	} {
		if must.Do(t, call.do()); s.Locked() {
			t.Fatalf("%s keeps the lock", call.name)
		}
	}
	must.Do(t, st.Close())
}

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
