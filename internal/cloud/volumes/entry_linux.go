package volumes

import (
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// nobody is the id that is reported if sandboxes have a single id and a file has another owner.
const nobody = 65534

// openPath opens the file at a path with O_PATH, so the file cannot be read. openPath never waits. If
// the file is a link, openPath opens the link and not the target.
func openPath(root *os.Root, name string) (*os.File, error) {
	return root.OpenFile(name, unix.O_PATH|unix.O_NOFOLLOW, 0)
}

// openDir opens a directory for operations on its entries.
func openDir(root *os.Root, name string) (*os.File, error) {
	return root.OpenFile(name, unix.O_PATH|unix.O_DIRECTORY, 0)
}

// openDirIn opens a directory in a directory. It does not follow a link.
func openDirIn(parent int, base string) (*os.File, error) {
	fd, err := unix.Openat(parent, base, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), base), nil
}

// setAttributes sets owner and mode of an open file.
func (i ids) setAttributes(file *os.File, owner Owner, mode uint32) error {
	fd := int(file.Fd())
	if !i.one {
		if err := unix.Fchownat(fd, "", int(owner.UID), int(owner.GID), unix.AT_EMPTY_PATH); err != nil {
			return &fs.PathError{Op: "chown", Path: file.Name(), Err: err}
		}
	}
	// Chmod must follow chown, which clears setuid. fchmod does not work for a descriptor that
	// was opened with O_PATH, but this name leads to the same file.
	if err := unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode); err != nil {
		return &fs.PathError{Op: "chmod", Path: file.Name(), Err: err}
	}
	return nil
}

// owner returns the owner of a file, as numbered in sandboxes.
func (i ids) owner(stat *unix.Stat_t) Owner {
	if !i.one {
		return Owner{stat.Uid, stat.Gid}
	}
	o := Owner{nobody, nobody}
	if int(stat.Uid) == os.Geteuid() {
		o.UID = 0
	}
	if int(stat.Gid) == os.Getegid() {
		o.GID = 0
	}
	return o
}

// entry describes an open file.
func (c *Content) entry(name string, file *os.File) (Entry, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return Entry{}, err
	}
	return c.entryOf(name, &stat, int(file.Fd()), "")
}

// entryOf describes the file that stat belongs to. If the file is a link, entryOf reads the target
// of the link at the path at, relative to the descriptor dir.
func (c *Content) entryOf(name string, stat *unix.Stat_t, dir int, at string) (Entry, error) {
	e := Entry{
		Path: clientPath(name), Kind: kindOf(stat), Size: stat.Size, Mode: stat.Mode & maxMode, Owner: c.ids.owner(stat),
		Accessed: moment(stat.Atim), Modified: moment(stat.Mtim), Changed: moment(stat.Ctim),
	}
	if e.Kind == Symlink {
		target := make([]byte, maxPath)
		n, err := unix.Readlinkat(dir, at, target)
		if err != nil {
			return Entry{}, err
		}
		e.Target = string(target[:n])
	}
	return e, nil
}

func kindOf(stat *unix.Stat_t) Kind {
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return File
	case unix.S_IFDIR:
		return Directory
	case unix.S_IFLNK:
		return Symlink
	}
	return Other
}

func moment(t unix.Timespec) time.Time { return time.Unix(t.Unix()).UTC() }

// Stat describes the file at a path. If the file is a link, Stat describes the link.
func (c *Content) Stat(name string) (Entry, error) {
	name, err := clean(name)
	if err != nil {
		return Entry{}, err
	}
	file, err := openPath(c.root, name)
	if err != nil {
		return Entry{}, explain(err)
	}
	defer file.Close()
	return c.entry(name, file)
}

// SetAttributes changes the mode and owner of the file at a path. The file must not be a link.
func (c *Content) SetAttributes(name string, a Attributes) (Entry, error) {
	name, err := clean(name)
	if err == nil {
		err = a.check()
	}
	if err != nil {
		return Entry{}, err
	}
	file, err := openPath(c.root, name)
	if err != nil {
		return Entry{}, explain(err)
	}
	defer file.Close()
	e, err := c.entry(name, file)
	switch {
	case err != nil:
		return Entry{}, err
	case e.Kind == Symlink:
		return Entry{}, ErrNotFile
	}
	owner, mode := a.apply(e.Owner, e.Mode)
	if err := c.ids.setAttributes(file, owner, mode); err != nil {
		return Entry{}, err
	}
	return c.entry(name, file)
}
