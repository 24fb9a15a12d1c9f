// Package storetest makes a single change of a store fail, and compares the contents of the
// store before and after the failure.
package storetest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/must"
)

// ErrFault is the error of the change that fails.
var ErrFault = errors.New("the disk failed")

// Fault makes one change of a store fail.
type Fault struct {
	mu    sync.Mutex
	left  int
	which store.Change
}

// FailNth makes the n-th change of the store fail, counted from now on. The first change has
// the number 1.
func FailNth(s *store.Store, n int) *Fault {
	f := &Fault{left: n}
	s.Before(func(c store.Change) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.left--; f.left != 0 {
			return nil
		}
		f.which = c
		return ErrFault
	})
	return f
}

// Mend lets all later changes succeed.
func Mend(s *store.Store) { s.Before(func(store.Change) error { return nil }) }

// Which returns the change that failed. It returns "" if the store made fewer changes.
func (f *Fault) Which() store.Change {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.which
}

// State is the whole content of a store.
type State struct {
	Records map[string]Record // keyed by table and id
	Unnamed []string          // directories that no record names
}

// Record is a record with its files.
type Record struct {
	Value, Dir string
	Saved      time.Time
	Files      map[string]string // contents, keyed by path
}

// tables lists the tables whose records Take reads.
var tables = []store.Table{
	store.Sandboxes, store.Running, store.Keys, store.Layers, store.Templates,
	store.Volumes, store.Secrets, store.Cache, store.Images, store.Uploads,
}

// Take returns the state of the store in dir. It first waits for all removals in the
// background.
func Take(t *testing.T, s *store.Store, dir string) State {
	t.Helper()
	s.Wait()
	all := State{Records: map[string]Record{}}
	var named []string
	for _, table := range tables {
		records, err := s.Records(table)
		must.Do(t, err)
		for _, r := range records {
			named = append(named, r.Dir)
			all.Records[string(table)+" "+r.ID] = Record{string(r.Value), r.Dir, r.Saved, files(t, r.Dir)}
		}
	}
	for _, parent := range []string{"files", "new", "trash"} {
		paths, err := filepath.Glob(filepath.Join(dir, parent, "*"))
		must.Do(t, err)
		for _, path := range paths {
			if !slices.Contains(named, path) {
				all.Unnamed = append(all.Unnamed, strings.TrimPrefix(path, dir))
			}
		}
	}
	return all
}

// files returns the contents of the files in the directory dir, keyed by path. If dir is "", it
// returns no files.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	if dir == "" {
		return nil
	}
	found := map[string]string{}
	root := os.DirFS(dir)
	err := fs.WalkDir(root, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := fs.ReadFile(root, path)
		found[path] = string(text)
		return err
	})
	must.Do(t, err)
	return found
}

// Same fails the test if two states differ.
func Same(t *testing.T, was, is State) {
	t.Helper()
	if diff := cmp.Diff(was, is, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the store is not as it was (-was +is):\n%s", diff)
	}
}
