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
	// followed contains the events that are requested for every directory.
	followed = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO
	// itself contains events of a directory itself. They are requested in addition if the parent of
	// the directory is not followed. A followed parent reports the same changes, with the directory's
	// name.
	itself = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
)

var errOverflow = errors.New("queue or buffer overflow")

// inotify follows directories through the kernel's inotify interface. No library is used, because a
// library would read ahead in its own goroutine. It would then be unknown whether a change that the
// kernel has reported was already passed on.
//
// wait, setDeadline and interrupt may be called from any goroutine. The other methods may be
// called from one goroutine at a time.
type inotify struct {
	file *os.File
	conn syscall.RawConn
	dirs map[int32]string // followed directories, keyed by the kernel's watch descriptor
	ids  map[string]int32
}

// change is an event at a path. mask contains the event's bits as the kernel defines them.
type change struct {
	path string
	mask uint32
}

// changeBuffers contains buffers. Each buffer is for the changes of one read.
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

// add makes the kernel report changes of a directory. If the directory is already followed
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
			return nil // the directory is mounted twice: one name is enough
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

// remove stops following a directory. It drops changes in the directory that have not been
// read.
func (n *inotify) remove(dir string) {
	id, known := n.ids[dir]
	if !known {
		return
	}
	n.drop(id)
	_ = n.conn.Control(func(fd uintptr) {
		_, _ = unix.InotifyRmWatch(int(fd), uint32(id)) // the kernel usually removed the watch with the directory
	})
}

func (n *inotify) drop(id int32) {
	delete(n.ids, n.dirs[id])
	delete(n.dirs, id)
}

// wait calls take whenever there are changes to read, until take returns true. It returns
// [os.ErrDeadlineExceeded] at the deadline, and after interrupt.
func (n *inotify) wait(take func() (done bool)) error {
	return n.conn.Read(func(uintptr) bool { return take() })
}

// setDeadline sets the deadline of wait. If after is 0, it removes the deadline.
func (n *inotify) setDeadline(after time.Duration) error {
	if after == 0 {
		return n.file.SetReadDeadline(time.Time{})
	}
	return n.file.SetReadDeadline(time.Now().Add(after))
}

func (n *inotify) interrupt() { _ = n.file.SetReadDeadline(longAgo) } // fails only if closed: then nothing waits

// pending returns the number of bytes of changes that can be read.
func (n *inotify) pending() (count int, err error) {
	var failed error
	err = n.conn.Control(func(fd uintptr) { count, failed = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return count, errors.Join(err, failed)
}

// read reads changes once, and passes them to handle in the order in which they happened. It
// returns the number of bytes that it read, or 0 if there was nothing to read.
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

// change converts an event of the kernel. It returns false if the event is irrelevant.
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
