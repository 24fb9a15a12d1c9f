package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/windows"
)

// lockedAt is the high half of the offset of the locked byte: other processes cannot read
// a locked byte, and they read the id of the lock's holder.
const lockedAt = 1

// lock makes this process the only one that has the store open, until it ends or calls
// release. The file has the process's id.
func lock(dir string) (release func() error, err error) {
	file, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = windows.LockFileEx(windows.Handle(file.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &windows.Overlapped{OffsetHigh: lockedAt})
	switch {
	case err == nil:
		pid := strconv.Itoa(os.Getpid()) + "\n"
		if err = file.Truncate(0); err == nil {
			_, err = file.WriteAt([]byte(pid), 0)
		}
	case errors.Is(err, windows.ERROR_LOCK_VIOLATION), errors.Is(err, windows.ERROR_IO_PENDING):
		err = inUse(dir, file)
	default:
		err = fmt.Errorf("its file system has no locks: use a directory on a local disk: %w", err)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file.Close, nil
}

// unlock does nothing: closing a file releases its lock.
func unlock(*os.File) {}

// owned and closeToOthers leave the owner and the access to the system: files have no
// modes.
func owned(os.FileInfo) bool { return true }

func closeToOthers(string, os.FileInfo) error { return nil }

// blocks returns the size of a file, as its size on the disk.
func blocks(info os.FileInfo) int64 { return info.Size() }

// syncDir does nothing: the system cannot report when names are on the disk.
func syncDir(string) error { return nil }
