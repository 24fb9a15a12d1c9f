package docker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/mounts"
)

// canShow reports that this system has the mounts that a handover needs.
const canShow = true

// handoverPrefix begins the names of handovers.
const handoverPrefix = "e2bctl-mounts-"

// handover is a directory of this server with a subdirectory for each mount of one container. While
// the container starts, the daemon finds the mounts in the handover, because a daemon accepts only
// mounts that have a path. A subdirectory on which nothing is mounted contains a mark: a file whose random
// name identifies the handover.
type handover struct {
	dir      string
	lock     *os.File // the open and locked directory; the kernel releases the lock when this server ends
	mounts   []engine.Mount
	attached []string
}

// newHandover makes a handover for the mounts in shown. It returns nil if shown is empty.
func newHandover(shown []engine.Mount) (_ *handover, err error) {
	if len(shown) == 0 {
		return nil, nil
	}
	h := &handover{mounts: shown}
	for h.lock == nil { // again if the sweep of another server took it before it was locked
		h.dir = filepath.Join(os.TempDir(), handoverPrefix+newInstance())
		if err := os.Mkdir(h.dir, 0o700); err != nil {
			return nil, err
		}
		if h.lock, err = lockHandover(h.dir); err != nil {
			return nil, errors.Join(err, os.Remove(h.dir))
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close())
		}
	}()
	for i := range shown {
		if err := errors.Join(os.Mkdir(h.path(i), 0o700), os.WriteFile(filepath.Join(h.path(i), h.mark()), nil, 0o600)); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// lockHandover opens and locks a handover. It returns nil if the handover is in use, if it no longer
// exists, or if it was not made by newHandover in a server of this user.
func lockHandover(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			return nil, nil
		}
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	lock := os.NewFile(uintptr(fd), dir)
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, nil
		}
		return nil, &os.PathError{Op: "lock", Path: dir, Err: err}
	}
	opened, err := lock.Stat()
	named, gone := os.Lstat(dir)
	if err != nil || gone != nil || !os.SameFile(opened, named) || opened.Mode().Perm()&0o077 != 0 || opened.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
		lock.Close()
		return nil, err
	}
	return lock, nil
}

// path returns the path at which the daemon looks for a mount.
func (h *handover) path(i int) string { return filepath.Join(h.dir, strconv.Itoa(i)) }

// mark returns the name of the file that is in each subdirectory of the handover. A mount on the
// subdirectory hides the file.
func (h *handover) mark() string { return filepath.Base(h.dir) }

// attach makes the mounts, and maps their owners to a user and a group of the host.
func (h *handover) attach(binary *os.File, user, group int) error {
	for i, m := range h.mounts {
		if err := h.attachOne(h.path(i), m, binary, mounts.Owner{User: user, Group: group}); err != nil {
			return err
		}
	}
	return nil
}

func (h *handover) attachOne(at string, m engine.Mount, binary *os.File, o mounts.Owner) error {
	dir, err := mounts.OpenDir(m)
	if err != nil {
		return err
	}
	defer dir.Close()
	mount, err := mounts.Show(dir, m, binary, o)
	if err != nil {
		return err
	}
	defer mount.Close()
	if err := unix.MoveMount(int(mount.Fd()), "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("the directory %s for %s: attach its mount to %s for the daemon: %w", m.Dir, m.Path, at, err)
	}
	h.attached = append(h.attached, at)
	return nil
}

// detach unmounts the mounts. It is called when the container has its own copies of the mounts. The
// directories stay, because the daemon looks for them on every request for files of the container.
func (h *handover) detach() error {
	if h == nil {
		return nil
	}
	var errs []error
	for _, at := range h.attached {
		errs = append(errs, detach(at))
	}
	h.attached = nil
	return errors.Join(errs...)
}

func detach(at string) error {
	if err := unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return &os.PathError{Op: "unmount", Path: at, Err: err}
	}
	return nil
}

// Close removes the handover.
func (h *handover) Close() error {
	if h == nil {
		return nil
	}
	return errors.Join(h.detach(), removeHandover(h.dir), h.lock.Close())
}

// removeHandover removes a handover, and any files that a daemon put in place of the mounts. It
// detaches mounts first, so that it does not remove the files in mounted directories.
func removeHandover(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := removeUnmounted(filepath.Join(dir, entry.Name())); err != nil {
			return err
		}
	}
	return os.Remove(dir)
}

func removeUnmounted(path string) error {
	var at unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, 0, &at); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if at.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		if err := detach(path); err != nil {
			return err
		}
		return removeUnmounted(path)
	}
	return os.RemoveAll(path)
}

// sweepHandovers removes the handovers of killed servers.
func sweepHandovers() error {
	temporary := os.TempDir()
	names, err := fs.Glob(os.DirFS(temporary), handoverPrefix+"*")
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		dir := filepath.Join(temporary, name)
		lock, err := lockHandover(dir)
		if lock != nil {
			err = errors.Join(removeHandover(dir), lock.Close())
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
