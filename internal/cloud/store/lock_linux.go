package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const lockFile = "lock"

// lock makes this process the only one that has the store open, until it ends or calls
// release. The file says which process that is.
func lock(dir string) (release func() error, err error) {
	file, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case err == nil:
		pid := strconv.Itoa(os.Getpid()) + "\n"
		if err = file.Truncate(0); err == nil {
			_, err = file.WriteAt([]byte(pid), 0)
		}
	case errors.Is(err, unix.EWOULDBLOCK):
		err = &InUseError{Dir: dir, PID: holder(file)}
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

// holder returns the process that has locked file, 0 if that is not known.
func holder(file *os.File) int {
	var text [32]byte
	n, _ := file.ReadAt(text[:], 0)
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text[:n])))
	return pid
}

// unlock releases the lock of a file. Closing it is not enough: a mapping holds it, too,
// and so does for a moment a process that is just being started.
func unlock(file *os.File) { _ = unix.Flock(int(file.Fd()), unix.LOCK_UN) }
