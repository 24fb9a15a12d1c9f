//go:build linux

package holder

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls of this file have the key as their last argument, so that the filter allows
// them. The kernel takes fewer arguments.

// atCWD is AT_FDCWD as an argument.
const atCWD = ^uintptr(-unix.AT_FDCWD - 1)

// empty is the empty path. It is an argument of calls that name their file by a descriptor.
var empty = [1]byte{}

func (h *holder) ioctl(command uintptr, argument unsafe.Pointer) unix.Errno {
	_, _, errno := unix.Syscall6(unix.SYS_IOCTL, uintptr(h.listener), command, uintptr(argument), 0, 0, uintptr(h.key))
	return errno
}

func (h *holder) openat2(dir int, path string, how unix.OpenHow) (int, error) {
	name, err := unix.BytePtrFromString(path)
	if err != nil {
		return -1, err
	}
	fd, _, errno := unix.Syscall6(unix.SYS_OPENAT2, uintptr(dir), uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(&how)),
		unsafe.Sizeof(how), 0, uintptr(h.key))
	return answer(fd, 0, errno)
}

// getfd duplicates a descriptor of another process.
func (h *holder) getfd(process int, number int32) (int, error) {
	fd, _, errno := unix.Syscall6(unix.SYS_PIDFD_GETFD, uintptr(process), uintptr(number), 0, 0, 0, uintptr(h.key))
	return answer(fd, 0, errno)
}

func (h *holder) chmod(fd int, mode uint32) error {
	path, err := unix.BytePtrFromString(itself(fd))
	if err != nil {
		return err
	}
	_, err = answer(unix.Syscall6(unix.SYS_FCHMODAT, atCWD, uintptr(unsafe.Pointer(path)), uintptr(mode), 0, 0, uintptr(h.key)))
	return err
}

func (h *holder) chown(fd int, uid, gid uint32) error {
	_, err := answer(unix.Syscall6(unix.SYS_FCHOWNAT, uintptr(fd), uintptr(unsafe.Pointer(&empty[0])), uintptr(uid), uintptr(gid),
		unix.AT_EMPTY_PATH, uintptr(h.key)))
	return err
}

// utimes changes the times of a file. If times is nil, it sets them to the current time.
func (h *holder) utimes(fd int, times []unix.Timespec) error {
	_, err := answer(unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), uintptr(unsafe.Pointer(&empty[0])),
		uintptr(unsafe.Pointer(unsafe.SliceData(times))), unix.AT_EMPTY_PATH, 0, uintptr(h.key)))
	return err
}

// watch adds a watch of a file to an instance of inotify.
func (h *holder) watch(instance, fd int, mask uint32) (int, error) {
	path, err := unix.BytePtrFromString(itself(fd))
	if err != nil {
		return -1, err
	}
	return answer(unix.Syscall6(unix.SYS_INOTIFY_ADD_WATCH, uintptr(instance), uintptr(unsafe.Pointer(path)), uintptr(mask), 0, 0, uintptr(h.key)))
}

// answer converts the results of a system call to a value and an error.
func answer(value, _ uintptr, errno unix.Errno) (int, error) {
	if errno != 0 {
		return -1, errno
	}
	return int(value), nil
}
