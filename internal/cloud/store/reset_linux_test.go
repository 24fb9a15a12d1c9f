package store

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// held returns the names in a directory.
func held(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must.Do(t, err)
	for _, entry := range entries {
		all = append(all, entry.Name())
	}
	return all
}

// filled returns a state directory with the record of a sandbox. The process of its store has
// ended.
func filled(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, Sandboxes, "a", "value", fill(t, s, "text"))
	put(t, s, Keys, "k", "value", "")
	must.Do(t, s.Close())
	return dir
}

// wantOnlyLock checks that a directory contains only the lock and the files in others.
func wantOnlyLock(t *testing.T, dir string, others ...string) {
	t.Helper()
	if got := held(t, dir); len(got) != 1+len(others) {
		t.Errorf("the directory holds %q, want the lock and %q", got, others)
	}
}

func TestReset(t *testing.T) {
	t.Parallel()
	dir := filled(t)
	must.Do(t, os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600)) // not of a store
	must.Do(t, Reset(t.Context(), dir))
	wantOnlyLock(t, dir, "mine")
	must.Do(t, os.Remove(filepath.Join(dir, "mine")))
	must.Do(t, Reset(t.Context(), dir)) // there is nothing
	s := open(t, dir)
	wantRecords(t, s, Sandboxes)
	wantRecords(t, s, Keys)
}

// TestResetDamaged checks that a damaged database is removed, and so is the rest after an
// interrupted Reset.
func TestResetDamaged(t *testing.T) {
	t.Parallel()
	dir := filled(t)
	must.Do(t, os.WriteFile(filepath.Join(dir, databaseFile), []byte("damaged"), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must.Is(t, Reset(ctx, dir), context.Canceled)
	must.Do(t, Reset(t.Context(), dir))
	wantOnlyLock(t, dir)
	open(t, dir)
}

// TestResetLinks checks that Reset does not follow links: their targets stay.
func TestResetLinks(t *testing.T) {
	t.Parallel()
	for _, link := range []string{databaseFile, published, staging, noted, trash, "files/a.X", "files/b.X/inside"} {
		t.Run(filepath.Base(link), func(t *testing.T) {
			t.Parallel()
			dir, outside := filled(t), t.TempDir()
			must.Do(t, os.WriteFile(filepath.Join(outside, "kept"), nil, 0o600))
			at := filepath.Join(dir, link)
			must.Do(t, os.RemoveAll(at))
			must.Do(t, os.MkdirAll(filepath.Dir(at), 0o700))
			must.Do(t, os.Symlink(outside, at))
			must.Do(t, Reset(t.Context(), dir))
			wantOnlyLock(t, dir)
			if got := held(t, outside); len(got) != 1 {
				t.Errorf("outside of it is %q, want kept", got)
			}
		})
	}
}

// TestMissingDirectories checks that a directory of the store that cannot be read is an error, and
// does not count as empty.
func TestMissingDirectories(t *testing.T) {
	t.Parallel()
	must.Is(t, syncDir(filepath.Join(t.TempDir(), "gone")), fs.ErrNotExist)
	for _, name := range []string{staging, trash, published} {
		dir := filled(t)
		s := open(t, dir)
		must.Do(t, os.Rename(s.path(name), filepath.Join(dir, "moved")))
		must.Is(t, s.sweep(t.Context()), fs.ErrNotExist)
		must.Do(t, os.Rename(filepath.Join(dir, "moved"), s.path(name)))
	}
}

// TestResetRefused checks that Reset refuses a directory that is not a state directory, and a state
// directory in use, and removes nothing.
func TestResetRefused(t *testing.T) {
	t.Parallel()
	must.Is(t, Reset(t.Context(), filepath.Join(t.TempDir(), "missing")), fs.ErrNotExist)
	foreign := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(foreign, "work"), nil, 0o600))
	must.Do(t, os.Mkdir(filepath.Join(foreign, published), 0o700))
	dir := filled(t)
	link := filepath.Join(t.TempDir(), "link")
	must.Do(t, os.Symlink(dir, link))
	for _, path := range []string{foreign, link, filepath.Join(foreign, "work")} {
		if err := Reset(t.Context(), path); err == nil {
			t.Errorf("%s was reset, want an error", path)
		}
	}
	if got := held(t, foreign); len(got) != 2 {
		t.Errorf("a directory that is no store holds %q, want what it held", got)
	}
	if os.Geteuid() == 0 { // only root can give a directory away
		other := filled(t)
		must.Do(t, os.Chown(other, 12345, -1))
		if err := Reset(t.Context(), other); err == nil || !strings.Contains(err.Error(), "another user") {
			t.Errorf("a directory of another user: got error %v, want one that says so", err)
		}
	}
	open(t, dir)
	if _, ok := errors.AsType[*InUseError](Reset(t.Context(), dir)); !ok {
		t.Error("a store in use was reset, want an InUseError")
	}
}
