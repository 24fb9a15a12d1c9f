package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/windows"
)

// lockedAt is the high half of the offset of the locked byte. This byte lies outside the file's
// content, because other processes cannot read a locked byte, but must be able to read the process
// id in the file.
const lockedAt = 1

// lock makes this process the only one that has the store open, until the process ends or calls
// release. It writes the process's id to the lock file.
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

// owned returns true, and closeToOthers does nothing. On Windows, files have no modes, and the
// system controls owners and access.
func owned(os.FileInfo) bool { return true }

func closeToOthers(string, os.FileInfo) error { return nil }

// blocks returns the size of a file, because the size on the disk is unknown.
func blocks(info os.FileInfo) int64 { return info.Size() }

// syncDir does nothing, because the system cannot report when names are on the disk.
func syncDir(string) error { return nil }
