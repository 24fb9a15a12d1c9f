package layers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/cloud/store/storetest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestDiskFails makes the disk fail at each change of the store. It checks that nothing of the
// layer is left, and that the same call succeeds when the disk works again.
func TestDiskFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, st := open(t, dir)
	write := func(dir string) error { return os.WriteFile(dir+"/files", nil, 0o600) }
	for what, make := range map[string]func() (string, error){
		"files": func() (string, error) {
			return s.Add(func(dir string, _ bool) (bool, error) { return false, write(dir) })
		},
		"memory":  func() (string, error) { return s.AddMemory(write) },
		"outside": func() (string, error) { return s.Outside("an image") },
	} {
		was := storetest.Take(t, st, dir)
		for n := 1; ; n++ {
			fault := storetest.FailNth(st, n)
			id, err := make()
			storetest.Mend(st)
			if fault.Which() == "" {
				must.Do(t, err)
				s.Release(id)
				break
			}
			if err == nil || id != "" {
				t.Errorf("%s, %q fails: got %q and error %v, want an error", what, fault.Which(), id, err)
			}
			if balanced(t, s, st, dir); fault.Which() != store.Rename { // then its own removal fails, too
				storetest.Same(t, was, storetest.Take(t, st, dir))
			}
		}
	}
}

// TestSharedOrNot checks that layers that were created for sharing are used only if sandboxes share
// directories, and that chains never mix them with copies.
func TestSharedOrNot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, st := open(t, dir)
	sharing := layers.Open(layers.Options{Store: st, Sharing: lifecycletest.Sharing})
	shared, other := add(t, sharing), add(t, sharing)
	plain, err := sharing.Add(func(dir string, _ bool) (bool, error) { return false, nil })
	must.Do(t, err)
	made, err := sharing.Make(func(string) error { return nil })
	must.Do(t, err)
	copying := layers.Open(layers.Options{Store: st})
	_, err = copying.Hold(shared, other, plain, made)
	must.Do(t, err)
	if _, err := copying.Make(func(string) error { t.Error("something is made"); return nil }); !errors.Is(err, layers.ErrNotShared) {
		t.Errorf("making a directory for sharing: got error %v, want %v", err, layers.ErrNotShared)
	}
	for _, tt := range []struct {
		ids            []string
		shares, copies bool
		layers, dirs   int
	}{
		{nil, true, true, 0, 0}, {[]string{shared}, true, false, 1, 0}, {[]string{shared, other, made}, true, false, 3, 0},
		{[]string{plain}, true, true, 0, 1}, {[]string{shared, plain}, false, false, 0, 0}, {[]string{plain, plain}, false, false, 0, 0},
	} {
		for set, want := range map[*layers.Set]bool{sharing: tt.shares, copying: tt.copies} {
			base, err := set.Use(tt.ids...)
			if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "were made to be shared") {
				t.Errorf("%q, sharing %v: got error %v, want it to work: %v", tt.ids, set == sharing, err, want)
			}
			if err != nil {
				continue
			}
			if len(base.Layers) != tt.layers || (base.Files != "") != (tt.dirs > 0) {
				t.Errorf("%q, sharing %v: got %+v, want %d layers and %d to copy", tt.ids, set == sharing, base, tt.layers, tt.dirs)
			}
			base.Release()
			base.Release()
		}
	}
	sharing.Release(shared, other, plain, made)
}

// TestGoneMeanwhile checks a layer whose last holder releases it while it is about to be used.
func TestGoneMeanwhile(t *testing.T) {
	t.Parallel()
	_, st := open(t, t.TempDir())
	first := layers.Open(layers.Options{Store: st, Sharing: lifecycletest.Sharing})
	id := add(t, first)
	var s *layers.Set
	s = layers.Open(layers.Options{Store: st, Sharing: func() layers.Sharing { // is first asked while Use looks at the layers
		s.Release(id)
		return lifecycletest.Sharing()
	}})
	_, err := s.Hold(id)
	must.Do(t, err)
	if base, err := s.Use(id); !errors.Is(err, layers.ErrGone) || base.Release != nil {
		t.Errorf("got %+v and error %v, want %v", base, err, layers.ErrGone)
	}
}

// TestRecords checks what the records of layers have, and which of them the next server finds.
func TestRecords(t *testing.T) {
	t.Parallel()
	_, st := open(t, t.TempDir())
	first := layers.Open(layers.Options{Store: st, Sharing: lifecycletest.Sharing})
	files, memory := add(t, first), addMemory(t, first)
	outside, err := first.Outside("an image")
	must.Do(t, err)
	all, err := st.Records(store.Layers)
	must.Do(t, err)
	for _, r := range all {
		var of struct{ CreatedAt time.Time }
		must.Do(t, json.Unmarshal(r.Value, &of))
		if age := time.Since(of.CreatedAt); age < 0 || age > time.Hour || of.CreatedAt.Location() != time.UTC {
			t.Errorf("%s was created at %v", r.ID, of.CreatedAt)
		}
	}
	dir, err := st.NewDir()
	must.Do(t, err)
	_, err = st.Put(store.Layers, "damaged", []byte("[]"), dir)
	must.Do(t, err)
	_, err = st.Put(store.Layers, "empty", []byte("{}"), "")
	must.Do(t, err)
	next := layers.Open(layers.Options{Store: st, Sharing: lifecycletest.Sharing})
	for _, id := range []string{"damaged", "empty"} {
		if _, err := next.Hold(id); !errors.Is(err, layers.ErrGone) {
			t.Errorf("%s: got error %v, want %v", id, err, layers.ErrGone)
		}
		must.Do(t, st.Delete(store.Layers, id))
	}
	base, err := next.Use(outside, files, memory)
	must.Do(t, err)
	if !slices.Equal(base.IDs, []string{outside, files}) || len(base.Layers) != 1 || base.Memory == "" || !next.Needs("an image") {
		t.Errorf("got %+v, want all of them", base)
	}
	base.Release()
}

// TestChainIsItsOwn checks that Chain does not change the list of layers that it receives.
func TestChainIsItsOwn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, st := open(t, dir)
	s := layers.Open(layers.Options{Store: st, Sharing: lifecycletest.Sharing})
	below := append(make([]string, 0, 4), add(t, s))
	var chains [][]string
	for range 2 {
		chain, err := s.Chain(t.Context(), below, add(t, s))
		must.Do(t, err)
		chains = append(chains, chain)
	}
	if slices.Equal(chains[0], chains[1]) {
		t.Errorf("got %q twice, want two chains", chains)
	}
	for _, chain := range append(chains, below) {
		s.Release(chain...)
	}
}

// TestKeep checks that no layer is removed while there may be unknown holders.
func TestKeep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, st := open(t, dir)
	id := add(t, layers.Open(layers.Options{Store: st}))
	for _, keep := range []bool{true, false} {
		s := layers.Open(layers.Options{Store: st})
		if keep {
			s.Keep()
		}
		s.Sweep()
		if _, err := s.Hold(id); (err == nil) != keep {
			t.Errorf("kept %v: got error %v", keep, err)
		}
	}
}

// recorded implements layers.Sharing. It merges nothing, and records its arguments.
type recorded struct{ dirs *[]string }

func (r recorded) Merge(_ context.Context, dirs []string, _ string) error {
	*r.dirs = slices.Clone(dirs)
	return nil
}

// TestMergeIsWhole checks that all layers of a chain are merged, lowest first and the new layer
// last.
func TestMergeIsWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, st := open(t, dir)
	var merged []string
	s := layers.Open(layers.Options{Store: st, Sharing: func() layers.Sharing { return recorded{&merged} }})
	var all []string
	for range layers.MaxChain + 1 {
		all = append(all, add(t, s))
	}
	dirs, err := s.Hold(all...)
	must.Do(t, err)
	chain, err := s.Chain(t.Context(), all[:layers.MaxChain], all[layers.MaxChain])
	must.Do(t, err)
	if !slices.Equal(merged, dirs) || len(chain) != 1 {
		t.Errorf("got %q of %q merged, want %q", chain, merged, dirs)
	}
	s.Release(chain...)
	s.Release(all...)
	s.Release(all[:layers.MaxChain]...)
}

// TestFailuresAreLogged checks that the failures that no caller sees are logged: of reading the
// layers, and of removing one, which the next start tries again.
func TestFailuresAreLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	_, st := open(t, t.TempDir())
	logged := layers.Open(layers.Options{Store: st, Logger: logger})
	if log.Len() != 0 {
		t.Errorf("a store that works: got log %q, want none", log.String())
	}
	id := add(t, logged)
	storetest.FailNth(st, 1)
	logged.Release(id)
	storetest.Mend(st)
	for _, want := range []string{"cannot be removed", id, storetest.ErrFault.Error()} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("a disk that removes nothing: got log %q, want %q", log.String(), want)
		}
	}
	must.Do(t, st.Delete(store.Layers, id))
	must.Do(t, st.Close())
	log.Reset()
	layers.Open(layers.Options{Store: st}) // without a logger
	layers.Open(layers.Options{Store: st, Logger: logger})
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "cannot be read") {
		t.Errorf("a store that is closed: got log %q, want one line that says so", got)
	}
}
