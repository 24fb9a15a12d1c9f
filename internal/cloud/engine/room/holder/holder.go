//go:build linux

package holder

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/seccomp"
)

// holder makes or refuses the calls of one sandbox.
type holder struct {
	own      int // the directory whose files may be changed
	listener int
	key      seccomp.Key

	duplicates  bool // descriptors of other processes can be duplicated
	readsMemory bool // process_vm_readv works
}

// Start applies the filter to all threads of this process. The process becomes the holder for all its
// descendants. Only files in the directory own may be changed. The holder ends with the process.
func Start(own string) error {
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		return err
	}
	h := &holder{key: seccomp.Key(binary.NativeEndian.Uint64(random[:])), duplicates: canDuplicate(), readsMemory: canReadMemory()}
	var err error
	if h.own, err = unix.Open(own, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return &os.PathError{Op: "open", Path: own, Err: err}
	}
	if h.listener, err = seccomp.ApplyInPlace(h.key); err != nil {
		return errors.Join(err, os.NewSyscallError("close", unix.Close(h.own)))
	}
	go h.serve()
	return nil
}

// notification is struct seccomp_notif.
type notification struct {
	ID        uint64
	PID       uint32 // id of the thread that made the call
	Flags     uint32
	Number    int32
	Arch      uint32
	Pointer   uint64
	Arguments [6]uint64
}

// response is struct seccomp_notif_resp.
type response struct {
	ID    uint64
	Value int64
	Error int32
	Flags uint32 // never SECCOMP_USER_NOTIF_FLAG_CONTINUE
}

// serve answers one call after the other. The kernel queues the calls that wait: at most one for each
// thread of the sandbox.
func (h *holder) serve() {
	for {
		var n notification
		switch errno := h.ioctl(unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)); errno {
		case 0:
			value, errno := h.decide(&n)
			r := response{ID: n.ID, Value: int64(value), Error: -int32(errno)}
			_ = h.ioctl(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r)) // fails only if the process has ended
		case unix.EINTR, unix.ENOENT: // ENOENT: the process has ended
		default:
			fmt.Fprintf(os.Stderr, "ask about system calls: %v\n", errno)
			_ = unix.Close(h.listener) // the calls fail from now on, instead of waiting for ever
			return
		}
	}
}

// decide makes the change that a call requests, if the change is permitted. It returns the result of
// the call.
func (h *holder) decide(n *notification) (value int, errno unix.Errno) {
	read, known := calls[seccomp.Name(n.Number)]
	if !known {
		return 0, unix.ENOSYS
	}
	c := &caller{holder: h, thread: int(n.PID), arguments: n.Arguments}
	defer c.close()
	err := read(c)
	// The data read and the files opened belong to the calling process only if it still waits:
	// otherwise its number may be another's by now.
	if e := h.ioctl(unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&n.ID)); e != 0 {
		return 0, unix.EPERM
	}
	if err == nil {
		value, err = c.change()
	}
	switch {
	case err == nil:
		return value, 0
	case errors.As(err, &errno):
		return 0, errno
	default:
		return 0, unix.EPERM
	}
}
