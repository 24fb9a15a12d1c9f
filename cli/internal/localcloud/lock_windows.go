package localcloud

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/windows"
)

// Processes lock two bytes of the file. The constants are the high halves of the offsets of these
// bytes. Other processes cannot read a locked byte, so both bytes are after the text that names the
// holder of the lock.
const (
	held  = 1 // locked for as long as a process holds the lock
	asked = 2 // locked while a process takes the lock or determines its holder
)

// lockFile locks file for this process until the process ends or closes it; it
// returns false when another process holds the lock.
func lockFile(file *os.File) (taken bool, err error) {
	if err := lockByte(file, asked, 0); err != nil {
		return false, err
	}
	defer unlockByte(file, asked)
	taken, err = tryHeld(file)
	if taken {
		_, err = file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return taken, err
}

// lockHolder returns the ID of the process that holds the lock on file, or 0 if no process does.
// Windows does not report the holder of a lock, so lockHolder tries to take the lock for a moment.
// No other process tries to take it during that time.
func lockHolder(file *os.File) (int, error) {
	if err := lockByte(file, asked, 0); err != nil {
		return 0, err
	}
	defer unlockByte(file, asked)
	free, err := tryHeld(file)
	if free {
		unlockByte(file, held)
	}
	if free || err != nil {
		return 0, err
	}
	var text [32]byte
	n, _ := file.ReadAt(text[:], 0) // the text ends before that
	pid, _, _ := strings.Cut(string(text[:n]), "\n")
	return strconv.Atoi(pid)
}

// tryHeld locks the byte at held. It returns false if another process has locked that byte.
func tryHeld(file *os.File) (bool, error) {
	err := lockByte(file, held, windows.LOCKFILE_FAIL_IMMEDIATELY)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return false, nil
	}
	return err == nil, err
}

// lockByte locks a byte. If another process has locked the byte, lockByte waits, unless how forbids
// waiting.
func lockByte(file *os.File, at, how uint32) error {
	return windows.LockFileEx(windows.Handle(file.Fd()), how|windows.LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 0, &windows.Overlapped{OffsetHigh: at})
}

// unlockByte unlocks a byte that this process has locked.
func unlockByte(file *os.File, at uint32) {
	_ = windows.UnlockFileEx(windows.Handle(file.Fd()), 0, 1, 0, &windows.Overlapped{OffsetHigh: at}) // closing the file also unlocks it
}

// ownSession returns attributes that let a process outlive the terminal from which it was started.
func ownSession() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.DETACHED_PROCESS}
}

// end ends a process at once, because a process without a console cannot receive a signal that asks
// it to end. The containers of the process end by themselves, and its state is kept.
func end(process *os.Process) error { return process.Kill() }
