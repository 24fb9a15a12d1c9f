package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Names of the directories in a store's directory.
const (
	published = "files"
	staging   = "new"
	noted     = "notes"
	trash     = "trash"
)

func (s *Store) path(name string) string { return filepath.Join(s.dir, name) }

func (s *Store) makeDirectories() error {
	for _, name := range []string{published, staging, noted, trash} {
		if err := os.MkdirAll(s.path(name), 0o700); err != nil {
			return err
		}
	}
	return nil
}

// NewDir creates an empty directory for Put. If Put does not take over the directory, the caller
// calls Discard to remove it. A directory that still remains is removed when the store is opened
// the next time.
func (s *Store) NewDir() (string, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.records == nil {
		return "", ErrClosed
	}
	dir := filepath.Join(s.path(staging), rand.Text())
	err := s.makeDirectories() // a temporary store has no directories yet
	if err == nil {
		err = s.makeDirectory(dir)
	}
	if err != nil {
		return "", fmt.Errorf("making a directory for files in %s: %w", s.dir, explain(err))
	}
	return dir, nil
}

// Discard removes dir, a directory from NewDir that is no longer needed.
func (s *Store) Discard(dir string) error {
	if filepath.Dir(dir) != s.path(staging) {
		return fmt.Errorf("discarding %s: it is no new directory of the store", dir)
	}
	if err := s.dispose(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("discarding %s: %w", dir, explain(err))
	}
	return nil
}

// publish renames dir, a directory from NewDir, for the record id in table. It returns when both
// the new name and the content of the directory survive a power failure. The new name ends with the
// name of the table, because [Survey] needs it. Names for the table Sandboxes have no such end.
func (s *Store) publish(table Table, id, dir string) (to string, err error) {
	if filepath.Dir(dir) != s.path(staging) {
		return "", fmt.Errorf("%s is no new directory of the store", dir)
	}
	to = filepath.Join(s.path(published), id+"."+rand.Text())
	if table != Sandboxes {
		to += "." + string(table)
	}
	if err := s.flush(dir); err != nil {
		return "", err
	}
	if err := s.rename(dir, to); err != nil {
		return "", err
	}
	if err := s.flush(s.path(published)); err != nil {
		return "", errors.Join(err, s.rename(to, dir))
	}
	return to, nil
}

// rehearse returns an error if the file system does not support Put. Some file systems cannot
// rename a directory, or do not report when names are on the disk.
func (s *Store) rehearse() error {
	dir, err := os.MkdirTemp(s.path(staging), "")
	if err != nil {
		return err
	}
	to, err := s.publish(Sandboxes, "rehearsal", dir)
	if err != nil {
		return errors.Join(fmt.Errorf("its file system cannot keep directories safely: use a directory on a local disk: %w", err), os.RemoveAll(dir))
	}
	return os.Remove(to)
}

// dispose removes a directory that no record names. If the store is closed, the error is
// [ErrClosed]. If files remain, the next opening of the store removes them.
func (s *Store) dispose(dir string) error {
	s.removing.RLock()
	defer s.removing.RUnlock()
	if s.release == nil {
		return ErrClosed
	}
	return s.remove(dir)
}

// drop moves a directory to trash, and removes it in the background. No record may name the
// directory. If files remain, the next opening of the store removes them.
func (s *Store) drop(dir string) {
	s.removing.RLock()
	defer s.removing.RUnlock()
	if s.release == nil {
		return
	}
	moved, err := s.discard(dir)
	if err != nil {
		return
	}
	gone := s.leaving.begin()
	s.background.Go(func() {
		defer gone()
		s.emptying.Lock()
		defer s.emptying.Unlock()
		_ = s.dispose(moved) // what it leaves, the next start removes
	})
}

// sweep removes directories that earlier processes left behind and that no record names.
func (s *Store) sweep(ctx context.Context) error {
	named := map[string]bool{}
	var unreadable error
	for _, table := range tables {
		all, err := s.Records(table)
		unreadable = errors.Join(unreadable, err)
		for _, record := range all {
			if record.Dir != "" {
				named[record.Dir] = true
			}
		}
	}
	parents := []string{staging, trash}
	if unreadable == nil {
		parents = append(parents, published)
	} else { // an unreadable record may name any directory
		s.notes = append(s.notes, fmt.Sprintf("files that no record names are kept, because a record cannot be read; e2bctl local prune removes one by its id: %v", unreadable))
	}
	for _, parent := range parents {
		names, err := os.ReadDir(s.path(parent))
		if err != nil {
			return err
		}
		for _, name := range names {
			dir := filepath.Join(s.path(parent), name.Name())
			if named[dir] {
				continue
			}
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			if err := s.remove(dir); err != nil {
				s.notes = append(s.notes, fmt.Sprintf("%s is no longer needed and cannot be removed: %v", dir, err))
			}
		}
	}
	for dir := range named {
		if _, err := os.Lstat(dir); err != nil {
			s.notes = append(s.notes, fmt.Sprintf("the files of a record are gone: %v", err))
		}
	}
	return nil
}
