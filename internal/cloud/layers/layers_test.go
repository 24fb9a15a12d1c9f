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

func open(t *testing.T, dir string) (*layers.Set, *store.Store) {
	t.Helper()
	st, err := store.Open(t.Context(), dir)
	must.Do(t, err)
	t.Cleanup(func() { _ = st.Close() })
	s := layers.Open(layers.Options{Store: st})
	t.Cleanup(func() { balanced(t, s, st, dir) })
	return s, st
}

// balanced checks that the set, its store and the store's directories contain the same layers.
func balanced(t *testing.T, s *layers.Set, st *store.Store, dir string) {
	t.Helper()
	for _, wrong := range s.Unbalanced() {
		t.Error(wrong)
	}
	all, err := st.Records(store.Layers)
	if err != nil {
		return // the store was closed first
	}
	want := 0
	for _, r := range all {
		if r.Dir != "" {
			want++
		}
	}
	if got := left(t, st, dir); got != want {
		t.Errorf("got %d directories in the store, want %d", got, want)
	}
}

func add(t *testing.T, s *layers.Set) string {
	t.Helper()
	id, err := s.Add(func(dir string, share bool) (bool, error) {
		return share, os.WriteFile(filepath.Join(dir, "files"), []byte("text"), 0o600)
	})
	must.Do(t, err)
	return id
}

func left(t *testing.T, st *store.Store, dir string) int {
	t.Helper()
	st.Wait()
	var all []string
	for _, parent := range []string{"files", "new", "trash"} {
		names, err := filepath.Glob(filepath.Join(dir, parent, "*"))
		must.Do(t, err)
		all = append(all, names...)
	}
	return len(all)
}

// TestHolders checks that a layer exists for as long as it has a holder.
func TestHolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, st := open(t, dir)
	a, b := add(t, s), add(t, s)
	dirs, err := s.Hold(a, b)
	if err != nil || len(dirs) != 2 {
		t.Fatalf("got %q and error %v, want two directories", dirs, err)
	}
	if text, err := os.ReadFile(filepath.Join(dirs[0], "files")); err != nil || string(text) != "text" {
		t.Errorf("got %q and error %v, want what was saved", text, err)
	}
	s.Release(a)
	s.Release(b)
	if _, err := s.Hold(a, b); err != nil {
		t.Errorf("got %v while others hold them", err)
	}
	s.Release(a, b)
	s.Release(a)
	if _, err := s.Hold(b, a); !errors.Is(err, layers.ErrGone) {
		t.Errorf("got %v for one that nobody held any longer, want ErrGone", err)
	}
	s.Release(b) // the failed Hold held neither
	if n := left(t, st, dir); n != 0 {
		t.Errorf("%d directories are left, want none", n)
	}
	if dirs, err := s.Hold(); err != nil || dirs != nil {
		t.Errorf("no layers: got %q and error %v, want none", dirs, err)
	}
}

// TestOutside checks that all calls with the same name return the same layer. This layer adds no
// files to a sandbox, and stays held after the sandbox has copied its files.
func TestOutside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	st, err := store.Open(t.Context(), dir)
	must.Do(t, err)
	told := 0
	s := layers.Open(layers.Options{Store: st, Unneeded: func() { told++ }})
	outside := func() string {
		t.Helper()
		id, err := s.Outside("an image")
		must.Do(t, err)
		return id
	}
	id := outside()
	if again := outside(); again != id || !s.Needs("an image") || s.Needs("another") {
		t.Errorf("got %s and %s, want one layer for the name", id, again)
	}
	only, err := s.Use(id)
	if err != nil || only.Files != "" || len(only.Layers) != 0 || !slices.Equal(only.IDs, []string{id}) {
		t.Errorf("without files: got %+v and error %v", only, err)
	}
	chain, err := s.Chain(t.Context(), only.IDs, add(t, s))
	must.Do(t, err)
	both, err := s.Use(chain...)
	if err != nil || both.Files == "" || len(both.Layers) != 0 || !slices.Equal(both.IDs, []string{id}) {
		t.Errorf("with files: got %+v and error %v", both, err)
	}
	s.Release(id, id)
	s.Release(chain...)
	only.Release()
	both.Copied()
	if _, err := s.Use(chain...); !errors.Is(err, layers.ErrGone) || told != 0 || !s.Needs("an image") {
		t.Errorf("got %v for files that were copied, told %d times, want them gone and the other held", err, told)
	}
	both.Release()
	if told != 1 || s.Needs("an image") || left(t, st, dir) != 0 {
		t.Errorf("told %d times, want once, when nobody holds it", told)
	}

	id, lost := outside(), outside()
	must.Do(t, st.Close())
	s, _ = open(t, dir)
	if _, err := s.Hold(id); err != nil || id != lost {
		t.Fatalf("after a restart: got error %v", err)
	}
	if s.Sweep(); !s.Needs("an image") {
		t.Error("after a restart, what is held is gone")
	}
}

// addMemory creates a layer with memory.
func addMemory(t *testing.T, s *layers.Set) string {
	t.Helper()
	id, err := s.AddMemory(func(dir string) error { return os.WriteFile(filepath.Join(dir, "pages"), []byte("pages"), 0o600) })
	must.Do(t, err)
	return id
}

// TestMemory checks that memory is passed to a sandbox separately from the files, that no layer is
// added above it, and that it is held until the sandbox runs.
func TestMemory(t *testing.T) {
	t.Parallel()
	for name, sharing := range map[string]func() layers.Sharing{"copied": nil, "shared": lifecycletest.Sharing} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			st, err := store.Open(t.Context(), dir)
			must.Do(t, err)
			t.Cleanup(func() { _ = st.Close() })
			s := layers.Open(layers.Options{Store: st, Sharing: sharing})
			outside, err := s.Outside("an image")
			must.Do(t, err)
			files, memory := add(t, s), addMemory(t, s)
			chain := []string{outside, files, memory}
			var bases []layers.Base
			for range 3 { // at the same time
				b, err := s.Use(chain...)
				must.Do(t, err)
				if text, err := os.ReadFile(filepath.Join(b.Memory, "pages")); err != nil || string(text) != "pages" {
					t.Errorf("got %q and error %v, want the memory", text, err)
				}
				ids, shared := []string{outside}, 0
				if sharing != nil {
					ids, shared = []string{outside, files}, 1
				}
				if !slices.Equal(b.IDs, ids) || len(b.Layers) != shared || (b.Files == "") != (shared == 1) {
					t.Errorf("got %+v, want nothing of the memory but its directory", b)
				}
				bases = append(bases, b)
			}
			if got, of := s.Split(chain...); !slices.Equal(got, chain[:2]) || of != memory {
				t.Errorf("split into %q and %q, want %q and %q", got, of, chain[:2], memory)
			}
			s.Release(chain...)
			for i, b := range bases {
				if again, err := s.Use(memory); err != nil {
					t.Errorf("while %d hold it: %v", len(bases)-i, err)
				} else {
					again.Release()
				}
				b.Copied()
				b.Copied()
			}
			if _, err := s.Use(memory); !errors.Is(err, layers.ErrGone) {
				t.Errorf("got %v, want it gone when all run", err)
			}
			for _, b := range bases {
				b.Release()
			}
			if n := left(t, st, dir); n != 0 {
				t.Errorf("%d directories are left, want none", n)
			}
		})
	}
}

// TestFailedSave checks that a failed save leaves nothing behind.
func TestFailedSave(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, st := open(t, dir)
	full := errors.New("no space left on device")
	save := func(dir string) error {
		return errors.Join(os.WriteFile(filepath.Join(dir, "files"), nil, 0o600), full)
	}
	if _, err := s.Add(func(dir string, _ bool) (bool, error) { return false, save(dir) }); !errors.Is(err, full) {
		t.Errorf("got %v, want %v", err, full)
	}
	if _, err := s.AddMemory(save); !errors.Is(err, full) {
		t.Errorf("memory: got %v, want %v", err, full)
	}
	if all, err := st.Records(store.Layers); len(all) != 0 || err != nil || left(t, st, dir) != 0 {
		t.Errorf("got %v and error %v, and %d directories, want nothing", all, err, left(t, st, dir))
	}
}

// TestSweep checks that layers that no holder holds after a restart are removed.
func TestSweep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, st := open(t, dir)
	named, lost := []string{add(t, s), addMemory(t, s)}, []string{add(t, s), addMemory(t, s)}
	must.Do(t, st.Close())
	s, st = open(t, dir)
	if _, err := s.Hold(named...); err != nil {
		t.Fatal(err)
	}
	s.Sweep()
	for _, id := range lost {
		if _, err := s.Hold(id); !errors.Is(err, layers.ErrGone) {
			t.Errorf("got %v for a layer that nobody named, want ErrGone", err)
		}
	}
	if n := left(t, st, dir); n != 2 {
		t.Errorf("%d directories are left, want 2", n)
	}
	if _, memory := s.Split(named...); memory != named[1] {
		t.Errorf("got %q as the memory, want %q", memory, named[1])
	}
	s.Release(named...)
	if n := left(t, st, dir); n != 0 {
		t.Errorf("%d directories are left, want none", n)
	}
}

// TestReleaseIsWhole checks that the release of a sandbox that never ran releases what it was to copy, too,
// and that each object outside that is no longer needed is told, in any order of the layers.
func TestReleaseIsWhole(t *testing.T) {
	t.Parallel()
	for name, sharing := range map[string]func() layers.Sharing{"copied": nil, "shared": lifecycletest.Sharing} {
		for _, first := range []bool{false, true} {
			dir := t.TempDir()
			st, err := store.Open(t.Context(), dir)
			must.Do(t, err)
			told := 0
			s := layers.Open(layers.Options{Store: st, Sharing: sharing, Unneeded: func() { told++ }})
			outside, err := s.Outside("an image")
			must.Do(t, err)
			chain := []string{outside, add(t, s), addMemory(t, s)}
			base, err := s.Use(chain...)
			must.Do(t, err)
			base.Release()
			if told != 0 || left(t, st, dir) != 2 {
				t.Errorf("%s: told %d times, and %d directories, want none while the test holds them", name, told, left(t, st, dir))
			}
			if first {
				slices.Reverse(chain)
			}
			if s.Release(chain...); told != 1 || left(t, st, dir) != 0 {
				t.Errorf("%s: told %d times, and %d directories are left, want once and none", name, told, left(t, st, dir))
			}
			must.Do(t, st.Close())
		}
	}
}
