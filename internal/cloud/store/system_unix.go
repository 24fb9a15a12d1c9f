//go:build unix

package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// lock makes this process the only one that has the store open, until the process ends or calls
// release. It writes the process's id to the lock file.
func lock(dir string) (release func() error, err error) {
	file, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case err == nil:
		pid := strconv.Itoa(os.Getpid()) + "\n" + namespaceOfProcesses() + "\n"
		if err = file.Truncate(0); err == nil {
			_, err = file.WriteAt([]byte(pid), 0)
		}
	case errors.Is(err, unix.EWOULDBLOCK):
		err = inUse(dir, file)
	default:
		err = fmt.Errorf("its file system has no locks: use a directory on a local disk: %w", err)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return func() error {
		unlock(file)
		return file.Close()
	}, nil
}

// unlock releases the lock of a file. Closing the file would not be enough: a mapping of the file
// also holds the lock, and a child process holds it for a moment while the child starts.
func unlock(file *os.File) { _ = unix.Flock(int(file.Fd()), unix.LOCK_UN) }

// owned reports whether a file belongs to this user.
func owned(info os.FileInfo) bool {
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(owner.Uid) == os.Geteuid()
}

// closeToOthers ensures that only the owner can enter a directory.
func closeToOthers(dir string, info os.FileInfo) error {
	if info.Mode().Perm() == 0o700 {
		return nil
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("others can enter it, and that cannot be changed: %w", err)
	}
	info, err := os.Stat(dir)
	if err == nil && info.Mode().Perm() != 0o700 {
		err = errors.New("others can enter it, and its file system keeps no modes: use a directory on another one")
	}
	return err
}

// blocks returns the bytes that a file takes on the disk.
func blocks(info os.FileInfo) int64 {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return info.Size()
	}
	return stat.Blocks * 512
}

// syncDir syncs a directory. When it returns, the names in the directory survive a power
// failure.
func syncDir(dir string) error {
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}
