//go:build unix

package cloud

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// openFiles returns the maximum number of open files of this process.
func openFiles() (uint64, error) {
	var files unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files)
	return uint64(files.Cur), os.NewSyscallError("getrlimit", err) //nolint:unconvert // FreeBSD's has a sign
}

// lacksAddress reports whether listening failed because this machine does not have the address.
func lacksAddress(err error) bool {
	return errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)
}
