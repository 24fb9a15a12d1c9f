//go:build linux

package holder

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// caller is the thread that made a call. The holder first opens the files in the arguments of the
// call. Then the holder checks that the thread still waits. Only after this check does the holder
// use the files.
type caller struct {
	*holder
	thread    int
	arguments [6]uint64

	open   []int // descriptors to close
	byPath bool  // the file of base was opened by a path

	// The file of the call is at path, relative to base. If path is "", it is the file of base.
	base   int
	path   string
	follow bool // follow a symbolic link at the end of path
	do     change
}

func (c *caller) close() {
	for _, fd := range c.open {
		_ = unix.Close(fd)
	}
}

// fd returns an argument that is a descriptor.
func (c *caller) fd(argument int) int32 { return int32(c.arguments[argument]) }

func (c *caller) flags(argument int) uint32 { return uint32(c.arguments[argument]) }

// changeAt prepares a change of a file that the call names by a path. path is the number of the
// argument that points to the path. A relative path starts at the directory dir.
func (c *caller) changeAt(dir int32, path int, flags uint32, do change) error {
	if flags&^(unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH) != 0 {
		return unix.EINVAL
	}
	name, err := c.text(c.arguments[path])
	if err != nil {
		return err
	}
	c.follow, c.do = flags&unix.AT_SYMLINK_NOFOLLOW == 0, do
	switch number, isOpen := descriptorIn(name); {
	case isOpen && c.follow:
		c.base, err = c.take(number)
	case name == "" && flags&unix.AT_EMPTY_PATH == 0:
		return unix.ENOENT
	case name == "" && dir != unix.AT_FDCWD:
		c.base, err = c.take(dir)
	case strings.HasPrefix(name, "/"):
		c.base, c.path = unix.AT_FDCWD, name
	case dir == unix.AT_FDCWD:
		c.base, err = c.add(unix.Open(fmt.Sprintf("/proc/%d/cwd", c.thread), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0))
		c.path = name
	default:
		c.base, err = c.take(dir)
		c.path = name
	}
	return err
}

// descriptorIn returns the descriptor that a path such as /proc/self/fd/3 names. Programs use such
// paths if there is no version of a call for descriptors. If the holder opened the path, it would get
// the file of its own descriptor with that number.
func descriptorIn(path string) (fd int32, is bool) {
	for _, dir := range []string{"/proc/self/fd/", "/proc/thread-self/fd/", "/dev/fd/"} {
		if name, found := strings.CutPrefix(path, dir); found {
			number, err := strconv.ParseUint(name, 10, 31)
			return int32(number), err == nil
		}
	}
	return 0, false
}

// descriptor prepares a change of a file that the call names by an argument with its descriptor.
func (c *caller) descriptor(argument int, do change) error { return c.descriptorOf(c.fd(argument), do) }

func (c *caller) descriptorOf(fd int32, do change) (err error) {
	c.do = do
	if c.base, err = c.take(fd); err != nil {
		return err
	}
	if c.byPath { // its flags are not the caller's
		return nil
	}
	flags, err := unix.FcntlInt(uintptr(c.base), unix.F_GETFL, 0)
	if err == nil && flags&unix.O_PATH != 0 {
		err = unix.EBADF
	}
	return err
}

// add records a descriptor to close at the end.
func (c *caller) add(fd int, err error) (int, error) {
	if err == nil {
		c.open = append(c.open, fd)
	}
	return fd, err
}

// take opens a descriptor of the caller in this process, as a duplicate. If the kernel does not
// permit duplicates of descriptors of other processes, take opens the descriptor's file by its path
// in /proc, with O_PATH. That is enough for files with a name.
func (c *caller) take(number int32) (int, error) {
	switch {
	case number < 0:
		return -1, unix.EBADF
	case c.duplicates:
		return c.duplicate(number)
	case c.isOwn():
		return c.add(unix.FcntlInt(uintptr(number), unix.F_DUPFD_CLOEXEC, 0))
	}
	c.byPath = true
	fd, err := c.add(unix.Open(fmt.Sprintf("/proc/%d/fd/%d", c.thread, number), unix.O_PATH|unix.O_CLOEXEC, 0))
	if errors.Is(err, unix.ENOENT) {
		err = unix.EBADF
	}
	return fd, err
}

// duplicate duplicates a descriptor of the caller.
func (c *caller) duplicate(number int32) (int, error) {
	process, err := c.add(unix.PidfdOpen(c.thread, unix.PIDFD_THREAD))
	if errors.Is(err, unix.EINVAL) { // Linux before 6.9 opens first threads only
		var id int
		if id, err = processOf(c.thread); err == nil {
			process, err = c.add(unix.PidfdOpen(id, 0))
		}
	}
	if err != nil {
		return -1, err
	}
	return c.add(c.getfd(process, number))
}

// processOf returns the process id of a thread.
func processOf(thread int) (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", thread))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(status) {
		if value, found := bytes.CutPrefix(line, []byte("Tgid:")); found {
			return strconv.Atoi(string(bytes.TrimSpace(value)))
		}
	}
	return 0, unix.ESRCH
}

// isOwn reports whether the caller is a thread of this process.
func (c *caller) isOwn() bool {
	return unix.Access(fmt.Sprintf("/proc/self/task/%d", c.thread), unix.F_OK) == nil
}
