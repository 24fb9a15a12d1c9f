package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/windows"
)

// lockedAt is the high half of the offset of the byte that is locked: others can read none
// that is, and they read who holds the lock.
const lockedAt = 1

// lock makes this process the only one that has the store open, until it ends or calls
// release. The file says which process that is.
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

// owned leaves it to the system whose directory it is, and so does closeToOthers who can
// enter it: files have no modes.
func owned(os.FileInfo) bool { return true }

func closeToOthers(string, os.FileInfo) error { return nil }

// blocks returns the size of a file, for what it takes on the disk.
func blocks(info os.FileInfo) int64 { return info.Size() }

// syncDir does nothing: the system cannot be asked when names are on the disk.
func syncDir(string) error { return nil }
