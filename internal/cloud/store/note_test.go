package store

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestFailedNoteLeavesNothing checks that no part of a note is left if it cannot be written, as on
// a full disk.
func TestFailedNoteLeavesNothing(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), t.TempDir())
	must.Do(t, err)
	defer s.Close()
	notes := filepath.Join(s.dir, noted)
	// A directory that is not empty cannot be replaced.
	must.Do(t, os.MkdirAll(filepath.Join(notes, string(Running)+".a", "b"), 0o700))
	if err := s.records.note(Running, "a", []byte("{}")); err == nil {
		t.Error("a note took the place of a directory")
	}
	wantFiles(t, s)
	if left, err := os.ReadDir(notes); err != nil || len(left) != 1 {
		t.Errorf("left %v, %v, want only what was there", left, err)
	}
	must.Do(t, os.RemoveAll(filepath.Join(notes, string(Running)+".a")))
}
