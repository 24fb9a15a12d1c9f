//go:build linux

package holder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// change makes the change, if the file is the sandbox's own.
func (c *caller) change() (int, error) {
	fd := c.base
	if c.path != "" {
		how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS}
		if !c.follow {
			how.Flags |= unix.O_NOFOLLOW
		}
		var err error
		if fd, err = c.add(c.openat2(c.base, c.path, how)); err != nil {
			return 0, err
		}
	}
	fd, err := c.find(fd)
	if err != nil {
		return 0, err
	}
	return c.do(c.holder, fd)
}

// find returns a descriptor of the file of fd. It finds the file by its path below the sandbox's
// own directory. A file without a name belongs to the sandbox if it is open for writing, because
// Landlock does not let the sandbox open other files for writing.
func (c *caller) find(fd int) (int, error) {
	const tries = 8 // a try fails if a process renames the file meanwhile
	for range tries {
		own, err := os.Readlink(itself(c.own))
		if err != nil {
			return -1, err
		}
		path, err := os.Readlink(itself(fd))
		if err != nil {
			return -1, err
		}
		below, err := filepath.Rel(own, path)
		if err != nil || !filepath.IsLocal(below) {
			break
		}
		found, err := c.add(c.openat2(c.own, below, unix.OpenHow{
			Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
		}))
		if err == nil && sameFile(found, fd) {
			return found, nil
		}
		if strings.HasSuffix(path, " (deleted)") {
			break
		}
	}
	if isUnnamed(fd) {
		return fd, nil
	}
	return -1, unix.EPERM
}

func sameFile(a, b int) bool {
	var one, other unix.Stat_t
	err := errors.Join(unix.Fstat(a, &one), unix.Fstat(b, &other))
	return err == nil && one.Dev == other.Dev && one.Ino == other.Ino
}

// isUnnamed reports whether fd is open for writing on a regular file without a name.
func isUnnamed(fd int) bool {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG || stat.Nlink != 0 {
		return false
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	return err == nil && flags&unix.O_PATH == 0 && flags&unix.O_ACCMODE != unix.O_RDONLY
}

// itself returns a path that leads to the file of a descriptor of this process.
func itself(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }
