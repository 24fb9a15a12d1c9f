package store

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// batch is the number of names that are read at a time from a directory.
const batch = 1024

// remove removes a directory of the store, with all files that a sandbox created in it. The tree of
// the directory may be so deep that its paths are longer than the system permits. The tree may have
// millions of names. The modes of its directories may lock out the owner. Therefore remove moves
// every directory that it finds to trash before it reads the directory. So no path is long, and
// only one directory is open at a time. While remove runs, nothing else may change the directory.
func (s *Store) remove(dir string) error {
	moved, err := s.discard(dir)
	if err != nil {
		return err
	}
	var failed []error
	for waiting := []string{moved}; len(waiting) > 0 && !s.leaves(); {
		last := len(waiting) - 1
		next := waiting[last]
		inside, err := s.empty(next)
		waiting = append(waiting[:last], inside...)
		if err == nil {
			err = os.Remove(next)
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

var errLeft = errors.New("the rest is left for the next start")

// leaves reports whether removals must stop. It returns true once the closing of a durable store
// has begun. The next start then removes the rest of trash.
func (s *Store) leaves() bool { return s.durable && s.closing.Load() }

// removeAll removes all files of a temporary store.
func (s *Store) removeAll() error {
	var failed []error
	for _, parent := range []string{published, staging, trash} {
		names, err := os.ReadDir(s.path(parent))
		failed = append(failed, ignore(err, fs.ErrNotExist))
		for _, name := range names {
			failed = append(failed, s.remove(filepath.Join(s.path(parent), name.Name())))
		}
	}
	return errors.Join(append(failed, os.RemoveAll(s.dir))...)
}

// discard moves a file or directory to trash, and returns the new path.
func (s *Store) discard(path string) (string, error) {
	to := filepath.Join(s.path(trash), rand.Text())
	if filepath.Dir(path) == s.path(trash) {
		to = path
	}
	info, err := os.Lstat(path)
	if err == nil && info.IsDir() && info.Mode().Perm()&0o700 != 0o700 { // a directory without write permission cannot be moved
		err = os.Chmod(path, 0o700)
	}
	if err == nil && to != path {
		err = s.rename(path, to)
	}
	return to, err
}

// empty removes the files in a directory of trash. It moves the directories in it to trash, and
// returns their new paths.
func (s *Store) empty(dir string) (moved []string, err error) {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() {
		return nil, err
	}
	for !s.leaves() {
		file, err := os.Open(dir)
		if err != nil {
			return moved, err
		}
		entries, err := file.ReadDir(batch) // opened again each time, because removals could make it skip names
		file.Close()
		if errors.Is(err, io.EOF) {
			return moved, nil
		}
		if err != nil {
			return moved, err
		}
		var failed []error
		for _, entry := range entries {
			path := filepath.Join(dir, entry.Name())
			if !entry.IsDir() {
				failed = append(failed, ignore(os.Remove(path), fs.ErrNotExist))
				continue
			}
			to, err := s.discard(path)
			if err == nil {
				moved = append(moved, to)
			}
			failed = append(failed, err)
		}
		if failed = slices.DeleteFunc(failed, func(err error) bool { return err == nil }); len(failed) > 0 {
			return moved, errors.Join(failed...)
		}
	}
	return moved, errLeft
}

func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}
