package store

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFailedNoteLeavesNothing checks that a note that cannot be written, as on a full disk, leaves
// no part of it behind.
func TestFailedNoteLeavesNothing(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	notes := filepath.Join(s.dir, noted)
	// A directory that is not empty cannot be replaced.
	if err := os.MkdirAll(filepath.Join(notes, string(Running)+".a", "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.records.note(Running, "a", []byte("{}")); err == nil {
		t.Error("a note took the place of a directory")
	}
	wantFiles(t, s)
	if left, err := os.ReadDir(notes); err != nil || len(left) != 1 {
		t.Errorf("left %v, %v, want only what was there", left, err)
	}
	if err := os.RemoveAll(filepath.Join(notes, string(Running)+".a")); err != nil {
		t.Fatal(err)
	}
}
