//go:build linux

package envd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// followed is the set of events requested for every directory.
	followed = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO
	// itself is requested as well for a directory whose parent is not followed: a
	// followed parent would report the same, and by name.
	itself = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
)

var errOverflow = errors.New("queue or buffer overflow")

// inotify follows directories with the kernel's inotify interface. Libraries for it
// read ahead in a goroutine of their own. Then nobody can know whether a change that
// the kernel has reported was already passed on.
//
// wait, setDeadline and interrupt may be called from any goroutine, the other methods
// by one goroutine at a time.
type inotify struct {
	file *os.File
	conn syscall.RawConn
	dirs map[int32]string // by the kernel's watch descriptor
	ids  map[string]int32
}

// change is an event at a path; mask has the kernel's bits for it.
type change struct {
	path string
	mask uint32
}

// changeBuffers holds buffers for the changes of one read.
var changeBuffers = sync.Pool{New: func() any { return new([16 << 10]byte) }}

func newInotify() (*inotify, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	file := os.NewFile(uintptr(fd), "inotify")
	conn, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &inotify{file: file, conn: conn, dirs: make(map[int32]string), ids: make(map[string]int32)}, nil
}

func (n *inotify) close() error { return n.file.Close() }

// add asks the kernel to report on a directory. If the directory is already followed
// under an old name, add replaces that name.
func (n *inotify) add(dir string, events uint32) error {
	var id int
	var failed error
	err := n.conn.Control(func(fd uintptr) {
		failed = ignoringEINTR(func() (err error) {
			id, err = unix.InotifyAddWatch(int(fd), dir, events|unix.IN_MASK_ADD|unix.IN_ONLYDIR|unix.IN_DONT_FOLLOW)
			return err
		})
	})
	if err == nil && failed != nil {
		err = &os.PathError{Op: "inotify_add_watch", Path: dir, Err: failed}
	}
	if err != nil {
		return err
	}
	if old, known := n.dirs[int32(id)]; known && old != dir {
		if sameFile(old, dir) {
			return nil // mounted twice: one name is enough
		}
		delete(n.ids, old)
	}
	n.dirs[int32(id)], n.ids[dir] = dir, int32(id)
	return nil
}

func sameFile(a, b string) bool {
	one, err := os.Lstat(a)
	if err != nil {
		return false
	}
	other, err := os.Lstat(b)
	return err == nil && os.SameFile(one, other)
}

// remove stops following a directory. Changes in it that have not been read are
// dropped.
func (n *inotify) remove(dir string) {
	id, known := n.ids[dir]
	if !known {
		return
	}
	n.drop(id)
	_ = n.conn.Control(func(fd uintptr) {
		_, _ = unix.InotifyRmWatch(int(fd), uint32(id)) // usually gone with the directory
	})
}

func (n *inotify) drop(id int32) {
	delete(n.ids, n.dirs[id])
	delete(n.dirs, id)
}

// wait calls take whenever there is something to read, until take returns true. It
// returns [os.ErrDeadlineExceeded] at the deadline and when interrupted.
func (n *inotify) wait(take func() (done bool)) error {
	return n.conn.Read(func(uintptr) bool { return take() })
}

// setDeadline sets the deadline of wait, or removes it when after is 0.
func (n *inotify) setDeadline(after time.Duration) error {
	if after == 0 {
		return n.file.SetReadDeadline(time.Time{})
	}
	return n.file.SetReadDeadline(time.Now().Add(after))
}

func (n *inotify) interrupt() { _ = n.file.SetReadDeadline(longAgo) } // fails only when closed: then nobody waits

// pending returns how many bytes of changes the kernel holds.
func (n *inotify) pending() (count int, err error) {
	var failed error
	err = n.conn.Control(func(fd uintptr) { count, failed = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return count, errors.Join(err, failed)
}

// read passes on the changes of one read, in the order in which they happened. It
// returns the number of bytes it read, which is 0 when there is nothing to read.
func (n *inotify) read(handle func(change) error) (int, error) {
	buffer := changeBuffers.Get().(*[16 << 10]byte)
	defer changeBuffers.Put(buffer)
	var size int
	var failed error
	err := n.conn.Control(func(fd uintptr) {
		failed = ignoringEINTR(func() (err error) {
			size, err = unix.Read(int(fd), buffer[:])
			return err
		})
	})
	switch {
	case err != nil:
		return 0, err
	case errors.Is(failed, unix.EAGAIN):
		return 0, nil
	case failed != nil:
		return 0, os.NewSyscallError("read", failed)
	}
	for rest := buffer[:size]; len(rest) >= unix.SizeofInotifyEvent; {
		id, mask := int32(binary.NativeEndian.Uint32(rest)), binary.NativeEndian.Uint32(rest[4:])
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(rest[12:]))
		name := string(bytes.TrimRight(rest[unix.SizeofInotifyEvent:end], "\x00"))
		rest = rest[end:]
		if mask&unix.IN_Q_OVERFLOW != 0 {
			return size, errOverflow
		}
		if c, ok := n.change(id, mask, name); ok {
			if err := handle(c); err != nil {
				return size, err
			}
		}
	}
	return size, nil
}

// change interprets an event from the kernel. It reports false if the event is of no
// interest.
func (n *inotify) change(id int32, mask uint32, name string) (change, bool) {
	path, known := n.dirs[id]
	if !known {
		return change{}, false
	}
	switch {
	case mask&(unix.IN_IGNORED|unix.IN_UNMOUNT) != 0:
		n.drop(id)
		return change{}, false
	case mask&unix.IN_MOVE_SELF != 0:
		n.remove(path) // the new path is unknown
	}
	if name != "" {
		path += "/" + name
	}
	return change{path: path, mask: mask}, true
}

func ignoringEINTR(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
