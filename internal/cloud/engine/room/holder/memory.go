//go:build linux

package holder

import (
	"bytes"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// read copies memory of the caller. Where the kernel refuses process_vm_readv, it reads
// /proc/THREAD/mem, which needs the same rights. This process may not open its own mem
// file, because it is not dumpable.
func (c *caller) read(address uint64, to []byte) error {
	switch {
	case c.readsMemory:
		return c.readDirectly(address, to)
	case c.isOwn():
		return readOwn(address, to)
	}
	memory, err := unix.Open(fmt.Sprintf("/proc/%d/mem", c.thread), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	n, err := unix.Pread(memory, to, int64(address))
	return errors.Join(whole(n, to, err), unix.Close(memory))
}

func (c *caller) readDirectly(address uint64, to []byte) error {
	local := []unix.Iovec{{Base: &to[0]}}
	local[0].SetLen(len(to))
	n, err := unix.ProcessVMReadv(c.thread, local, []unix.RemoteIovec{{Base: uintptr(address), Len: len(to)}}, 0)
	return whole(n, to, err)
}

// readOwn copies memory of this process through a pipe: the kernel answers EFAULT for an address
// that does not exist, where reading it here would end the process.
func readOwn(address uint64, to []byte) (err error) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(pipe[0]), unix.Close(pipe[1])) }()
	if _, _, errno := unix.Syscall(unix.SYS_WRITE, uintptr(pipe[1]), uintptr(address), uintptr(len(to))); errno != 0 {
		return errno
	}
	n, err := unix.Read(pipe[0], to)
	return whole(n, to, err)
}

// whole returns EFAULT if less was read than asked for: then the memory of the process ends there.
func whole(n int, to []byte, err error) error {
	if err == nil && n != len(to) || errors.Is(err, unix.EIO) {
		return unix.EFAULT
	}
	return err
}

// text copies a string of the caller that ends in a zero byte. It does not read into a page behind
// the end, which may not exist.
func (c *caller) text(address uint64) (string, error) {
	const page, most = 4096, unix.PathMax
	var text []byte
	for len(text) < most {
		part := make([]byte, min(page-address%page, uint64(most-len(text))))
		if err := c.read(address, part); err != nil {
			return "", err
		}
		if end := bytes.IndexByte(part, 0); end >= 0 {
			return string(append(text, part[:end]...)), nil
		}
		text, address = append(text, part...), address+uint64(len(part))
	}
	return "", unix.ENAMETOOLONG
}
