package store_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/cloud/store/storetest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// written returns a new directory from NewDir with one file.
func written(t *testing.T, s *store.Store, text string) string {
	t.Helper()
	dir, err := s.NewDir()
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "text"), []byte(text), 0o600)
	}
	must.Do(t, err)
	return dir
}

// faulty is a call that changes a store. The store has a record a with files, and a key other
// without files.
type faulty struct {
	do      func(s *store.Store, dir, old string) error // old is the directory of the record a
	changes int                                         // number of changes on the disk that can fail
}

// TestFaultAtEachChange makes each change on the disk fail. After an error, everything is as before
// the call, and the same call succeeds when the disk works again. If the fault comes too late for
// an error, the result is the same as without the fault, except for a directory that the next start
// removes.
func TestFaultAtEachChange(t *testing.T) {
	t.Parallel()
	put := func(id string) func(s *store.Store, dir, old string) error {
		return func(s *store.Store, dir, _ string) error {
			_, err := s.Put(store.Sandboxes, id, []byte("new"), dir)
			return err
		}
	}
	for name, tt := range map[string]faulty{
		"a new directory":      {func(s *store.Store, _, _ string) error { _, err := s.NewDir(); return err }, 1},
		"a directory given up": {func(s *store.Store, dir, _ string) error { return s.Discard(dir) }, 1},
		"a first record":       {put("b"), 4},
		"a record replaced":    {put("a"), 5},
		"a record without files": {func(s *store.Store, _, _ string) error {
			_, err := s.Put(store.Keys, "k", []byte("new"), "")
			return err
		}, 1},
		"a record that loses them": {func(s *store.Store, _, _ string) error {
			_, err := s.Put(store.Sandboxes, "a", []byte("new"), "")
			return err
		}, 2},
		"a record that keeps them": {func(s *store.Store, _, old string) error {
			_, err := s.Put(store.Sandboxes, "a", []byte("new"), old)
			return err
		}, 1},
		"a record deleted":  {func(s *store.Store, _, _ string) error { return s.Delete(store.Sandboxes, "a") }, 2},
		"one without files": {func(s *store.Store, _, _ string) error { return s.Delete(store.Keys, "other") }, 1},
	} {
		for _, durable := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, durable %v", name, durable), func(t *testing.T) {
				t.Parallel()
				want := tt.failAt(t, durable, tt.changes+1, storetest.State{})
				for n := tt.changes; n > 0; n-- {
					tt.failAt(t, durable, n, want)
				}
			})
		}
	}
}

// failAt calls do in a new store, and makes the n-th change on the disk fail. It compares the state
// after the call with want. If no change failed, it uses the new state in place of want. It returns
// the state with which it compared.
func (c faulty) failAt(t *testing.T, durable bool, n int, want storetest.State) storetest.State {
	t.Helper()
	home := filepath.Join(t.TempDir(), "state")
	s := store.Temporary(home)
	if durable {
		var err error
		s, err = store.Open(t.Context(), home)
		must.Do(t, err)
	}
	old, err := s.Put(store.Sandboxes, "a", []byte("old"), written(t, s, "old"))
	must.Do(t, err)
	_, err = s.Put(store.Keys, "other", []byte("old"), "")
	must.Do(t, err)
	dir := written(t, s, "new")
	was := storetest.Take(t, s, home)
	fault := storetest.FailNth(s, n)
	err = c.do(s, dir, old)
	is := storetest.Take(t, s, home)
	storetest.Mend(s)
	switch {
	case (fault.Which() == "") != (n > c.changes):
		t.Errorf("change %d failed: %q, want %d that can fail", n, fault.Which(), c.changes)
	case fault.Which() == "":
		if want = is; err != nil {
			t.Errorf("without a fault: %v", err)
		}
	case errors.Is(err, storetest.ErrFault):
		storetest.Same(t, was, is)
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("at %q: got %q, want no error but that of the disk", fault.Which(), err)
		}
		if err := c.do(s, dir, old); err != nil {
			t.Errorf("without the fault that there was at %q: %v", fault.Which(), err)
		}
	case err != nil:
		t.Errorf("got error %v at %q, want that of the disk", err, fault.Which())
	case fault.Which() != store.Rename || len(is.Unnamed) > len(want.Unnamed)+1:
		t.Errorf("got no error though it could not %s, with %q left", fault.Which(), is.Unnamed)
	}
	ignored := cmpopts.IgnoreFields(storetest.Record{}, "Dir", "Saved")
	if diff := cmp.Diff(want.Records, storetest.Take(t, s, home).Records, ignored); diff != "" {
		t.Errorf("at %q the records are (-want +got):\n%s", fault.Which(), diff)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if !durable {
		return want
	}
	next, err := store.Open(t.Context(), home)
	must.Do(t, err)
	now := storetest.Take(t, next, home)
	if !cmp.Equal(want.Records, now.Records, ignored) || len(now.Unnamed) > 0 {
		t.Errorf("after %q the next start has %+v, want %+v and nothing else", fault.Which(), now, want.Records)
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
	return want
}
