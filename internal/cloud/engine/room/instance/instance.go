//go:build linux

package instance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/place"
)

// Spec lists the things that the keeper removes when the server has ended. It is also written to
// the lock file, in case the keeper is killed too.
type Spec struct {
	Dir    string   `json:"dir"`
	Roots  string   `json:"places"` // parent of the directories of sandboxes without namespaces; it need not exist
	Groups []string `json:"groups"`
}

// maxSpec bounds the text of a Spec.
const maxSpec = 64 << 10

// lockName is the name of the lock file in an instance directory. The server and the keeper hold
// the file's lock together. If the lock is released, the directory is not in use.
const lockName = "lock"

// Clean ends the instance's remaining processes and removes its directories.
func (s Spec) Clean(ctx context.Context) error {
	errs := []error{cgroup.Remove(ctx, s.Groups), place.Remove(s.Roots)}
	// The lock is removed last: a directory without one is not recognised as stale.
	entries, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.Join(errs...)
	}
	errs = append(errs, err)
	for _, e := range entries {
		if e.Name() != lockName {
			errs = append(errs, place.Remove(filepath.Join(s.Dir, e.Name())))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.RemoveAll(s.Dir)
}

// Lock makes the lock file of an instance. It locks the file before it gives the file its name, so
// that a new directory is never mistaken for a stale one.
func Lock(spec Spec) (*os.File, error) {
	f, err := os.CreateTemp(spec.Dir, ".lock-*")
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(spec)
	if err == nil {
		_, err = f.Write(data)
	}
	err = errors.Join(err, unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB))
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(spec.Dir, lockName))
	}
	if err != nil {
		f.Close()
		return nil, errors.Join(err, os.Remove(f.Name()))
	}
	return f, nil
}

// ReapStale cleans up after stale instances whose directories have the same parent as dir. An
// instance is stale if its server and its keeper have both ended without cleaning up.
func ReapStale(ctx context.Context, dir string) error {
	parent := filepath.Dir(dir)
	// The entries are read, not matched: the parent's name may look like a pattern.
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		// A link leads to a directory elsewhere, which is no instance of this parent.
		if e.IsDir() && e.Name() != filepath.Base(dir) {
			errs = append(errs, reap(ctx, filepath.Join(parent, e.Name(), lockName)))
		}
	}
	return errors.Join(errs...)
}

// reap cleans up after one instance, if the instance's lock is free and this process may read the
// lock file.
func reap(ctx context.Context, lock string) error {
	fd, err := unix.Open(lock, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil // gone in the meantime, or another user's
	}
	f := os.NewFile(uintptr(fd), lock)
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !OwnedByUs(info) || !info.Mode().IsRegular() {
		return err
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil // in use
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSpec))
	if err != nil {
		return err
	}
	var spec Spec
	if err := json.Unmarshal(data, &spec); err != nil || spec.Dir != filepath.Dir(lock) {
		return nil // not a lock of ours
	}
	if err := spec.check(); err != nil {
		return fmt.Errorf("clean up after the instance of %s, whose server has ended: %w: remove that directory by hand", lock, err)
	}
	return spec.Clean(ctx)
}

// OwnedByUs reports whether a file belongs to the user of this process.
func OwnedByUs(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
