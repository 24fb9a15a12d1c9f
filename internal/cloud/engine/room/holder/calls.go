//go:build linux

package holder

import (
	"encoding/binary"
	"time"

	"golang.org/x/sys/unix"
)

// change makes the change that a call requests to the file of fd. fd may be opened with O_PATH.
type change func(h *holder, fd int) (value int, err error)

// calls maps the names of the calls that the filter forwards to the holder to functions. Each
// function reads the arguments of its call.
var calls = map[string]func(c *caller) error{
	"chmod":     func(c *caller) error { return c.changeAt(unix.AT_FDCWD, 0, 0, mode(c.arguments[1])) },
	"fchmod":    func(c *caller) error { return c.descriptor(0, mode(c.arguments[1])) },
	"fchmodat":  func(c *caller) error { return c.changeAt(c.fd(0), 1, 0, mode(c.arguments[2])) },
	"fchmodat2": func(c *caller) error { return c.changeAt(c.fd(0), 1, c.flags(3), mode(c.arguments[2])) },

	"chown": func(c *caller) error { return c.changeAt(unix.AT_FDCWD, 0, 0, owner(c.arguments[1:])) },
	"lchown": func(c *caller) error {
		return c.changeAt(unix.AT_FDCWD, 0, unix.AT_SYMLINK_NOFOLLOW, owner(c.arguments[1:]))
	},
	"fchown": func(c *caller) error { return c.descriptor(0, owner(c.arguments[1:])) },
	"fchownat": func(c *caller) error {
		return c.changeAt(c.fd(0), 1, c.flags(4), owner(c.arguments[2:]))
	},

	"utime": func(c *caller) error {
		return c.timesAt(unix.AT_FDCWD, 0, 0, 1, func(n [4]int64) []unix.Timespec { return seconds(n[0], n[1]) }, 16)
	},
	"utimes":    func(c *caller) error { return c.timesAt(unix.AT_FDCWD, 0, 0, 1, microseconds, 32) },
	"futimesat": func(c *caller) error { return c.timesAt(c.fd(0), 1, 0, 2, microseconds, 32) },
	"utimensat": func(c *caller) error { return c.timesAt(c.fd(0), 1, c.flags(3), 2, nanoseconds, 32) },

	"inotify_add_watch": (*caller).watch,
}

// mode returns a change of a file's mode. argument is the mode in the arguments of the call.
func mode(argument uint64) change {
	mode := uint32(argument) & 0o7777
	return func(h *holder, fd int) (int, error) {
		var stat unix.Stat_t
		if err := unix.Fstat(fd, &stat); err != nil {
			return 0, err
		}
		switch {
		case mode&(unix.S_ISUID|unix.S_ISGID) != 0: // which the filter refuses, too
			return 0, unix.EPERM
		case stat.Mode&unix.S_IFMT == unix.S_IFLNK:
			return 0, unix.EOPNOTSUPP
		}
		return 0, h.chmod(fd, mode)
	}
}

// owner returns a change of a file's owner and group. ids are the two ids in the arguments of the call.
func owner(ids []uint64) change {
	return func(h *holder, fd int) (int, error) { return 0, h.chown(fd, uint32(ids[0]), uint32(ids[1])) }
}

// timesAt reads a call that changes times. argument is the number of the argument that points to the
// times. A null pointer means the current time.
func (c *caller) timesAt(dir int32, path int, flags uint32, argument int, convert func([4]int64) []unix.Timespec, size int) error {
	var times []unix.Timespec
	if address := c.arguments[argument]; address != 0 {
		var raw [32]byte
		if err := c.read(address, raw[:size]); err != nil {
			return err
		}
		var numbers [4]int64
		for i := range numbers {
			numbers[i] = int64(binary.NativeEndian.Uint64(raw[8*i:]))
		}
		if times = convert(numbers); times == nil {
			return unix.EINVAL
		}
	}
	change := func(h *holder, fd int) (int, error) { return 0, h.utimes(fd, times) }
	if c.arguments[path] == 0 && dir != unix.AT_FDCWD { // futimens
		return c.descriptorOf(dir, change)
	}
	return c.changeAt(dir, path, flags, change)
}

func seconds(access, modification int64) []unix.Timespec {
	return []unix.Timespec{{Sec: access}, {Sec: modification}}
}

func microseconds(n [4]int64) []unix.Timespec {
	const second = int64(time.Second / time.Microsecond)
	if n[1] < 0 || n[1] >= second || n[3] < 0 || n[3] >= second {
		return nil
	}
	const each = int64(time.Microsecond)
	return []unix.Timespec{{Sec: n[0], Nsec: n[1] * each}, {Sec: n[2], Nsec: n[3] * each}}
}

func nanoseconds(n [4]int64) []unix.Timespec {
	return []unix.Timespec{{Sec: n[0], Nsec: n[1]}, {Sec: n[2], Nsec: n[3]}}
}

// watch reads a call of inotify_add_watch. The holder duplicates the caller's descriptor of the
// inotify instance, and adds the watch to the instance. If the holder can only open the descriptor
// by a path and not duplicate it, it refuses the call.
func (c *caller) watch() error {
	instance, err := c.take(c.fd(0))
	if err == nil && c.byPath {
		err = unix.EPERM
	}
	if err != nil {
		return err
	}
	mask := uint32(c.arguments[2])
	var flags uint32
	if mask&unix.IN_DONT_FOLLOW != 0 {
		flags = unix.AT_SYMLINK_NOFOLLOW
	}
	return c.changeAt(unix.AT_FDCWD, 1, flags, func(h *holder, fd int) (int, error) {
		return h.watch(instance, fd, mask&^unix.IN_DONT_FOLLOW)
	})
}
