package localcloud

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/windows"
)

// lockedAt is the high half of the offset of the byte that is locked: others can read none
// that is, and they read who holds the lock.
const lockedAt = 1

// lockFile locks file for this process until the process ends or closes it; it
// returns false when another process holds the lock. lockHolder takes it for a moment, so it
// is tried more than once.
func lockFile(file *os.File) (bool, error) {
	for range 5 {
		taken, err := tryLock(file, windows.LOCKFILE_EXCLUSIVE_LOCK)
		if err != nil {
			return false, err
		}
		if taken {
			_, err = file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
			return true, err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return false, nil
}

// lockHolder returns the process that holds the lock on file, or 0 when none
// does.
func lockHolder(file *os.File) (int, error) {
	free, err := tryLock(file, 0)
	if err != nil || free {
		return 0, err // closing the file releases it
	}
	var text [32]byte
	n, _ := file.ReadAt(text[:], 0)
	pid, _, _ := strings.Cut(string(text[:n]), "\n")
	return strconv.Atoi(pid)
}

func tryLock(file *os.File, how uint32) (bool, error) {
	err := windows.LockFileEx(windows.Handle(file.Fd()), how|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &windows.Overlapped{OffsetHigh: lockedAt})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return false, nil
	}
	return err == nil, err
}

// ownSession lets a process outlive the terminal that it was started from.
func ownSession() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.DETACHED_PROCESS}
}

// end ends a process at once: there is no signal that asks one without a console. Its
// containers end by themselves, and what it keeps survives that.
func end(process *os.Process) error { return process.Kill() }
