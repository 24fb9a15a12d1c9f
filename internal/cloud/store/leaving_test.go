package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestFreed checks that the space of a deleted directory is free after Freed, even while other
// directories are being deleted.
func TestFreed(t *testing.T) {
	t.Parallel()
	var l leaving
	gone := l.begin()
	for done := range l.each {
		gone()
		select {
		case <-done:
		default:
			t.Fatal("a directory is removed, and those who wait for it are not told")
		}
	}
	s, err := Open(t.Context(), t.TempDir())
	must.Do(t, err)
	t.Cleanup(func() { _ = s.Close() })
	dir, err := s.NewDir()
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "file"), []byte("text"), 0o600)
	}
	for n := range 300 { // so that removing it takes a while
		err = errors.Join(err, os.Mkdir(filepath.Join(dir, strconv.Itoa(n)), 0o700))
	}
	if err == nil {
		_, err = s.Put(Sandboxes, "a", nil, dir)
	}
	must.Do(t, err)
	s.emptying.Lock() // the removal has to wait
	if err := s.Delete(Sandboxes, "a"); err != nil {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	s.Freed(ended) // the caller's context bounds the wait
	if left, err := os.ReadDir(s.path(trash)); err != nil || len(left) != 1 {
		t.Errorf("before: %d directories are left (%v), want the one that is to be removed", len(left), err)
	}
	s.emptying.Unlock()
	s.Freed(t.Context())
	if left, err := os.ReadDir(s.path(trash)); err != nil || len(left) != 0 {
		t.Errorf("after: %d directories are left (%v), want none", len(left), err)
	}
	if len(s.leaving.each) > 0 {
		t.Errorf("after: %d directories are waited for, want none", len(s.leaving.each))
	}
}
