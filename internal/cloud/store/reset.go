package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Verify returns an error if [Reset] must not empty dir. It returns nil only if dir is a directory
// of this user, and is empty or contains a store, possibly an incomplete one. If dir is a link to such
// a directory, Verify returns an error. Verify changes nothing.
func Verify(dir string) error {
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
	case !info.IsDir():
		err = errors.New("it is no directory")
	case !owned(info):
		err = errors.New("it is a directory of another user")
	default:
		err = claimable(dir)
	}
	if err != nil {
		return fmt.Errorf("the state directory %s: %w", dir, err)
	}
	return nil
}

// Reset removes everything that a state directory contains, even if the store in it is damaged.
// Reset keeps the directory itself, its lock, and files that no store creates. It removes links,
// and never follows them. If another process has the store open, the error is an [InUseError]. If
// ctx or the process ends before everything is removed, a second Reset removes the rest.
func Reset(ctx context.Context, dir string) (err error) {
	if err := Verify(dir); err != nil {
		return err
	}
	s := &Store{dir: dir, durable: true}
	if s.release, err = lock(dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.removeState(ctx); err != nil {
		return fmt.Errorf("removing what is in %s: %w", dir, explain(err))
	}
	return nil
}

// removeState moves everything to trash before it removes anything. It moves the database first. If
// removeState stopped while the database was still in its place, the next start would treat records
// without directories as damage.
func (s *Store) removeState(ctx context.Context) error {
	if info, err := os.Lstat(s.path(trash)); err == nil && !info.IsDir() {
		if err := os.Remove(s.path(trash)); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(s.path(trash), 0o700); err != nil {
		return err
	}
	for _, name := range []string{databaseFile, unfinished, published, staging, noted, AllowedFile} {
		if _, err := s.discard(s.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	names, err := os.ReadDir(s.path(trash))
	if err != nil {
		return err
	}
	for _, name := range names {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := s.remove(filepath.Join(s.path(trash), name.Name())); err != nil {
			return err
		}
	}
	return os.Remove(s.path(trash))
}
