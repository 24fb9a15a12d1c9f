//go:build linux

package holder

import (
	"bytes"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// read copies memory of the caller. If the kernel refuses process_vm_readv, read uses
// /proc/THREAD/mem, which needs the same rights. For a caller in this process, it uses readOwn
// instead: the process cannot open its own mem file, because it is not dumpable.
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

// readOwn copies memory of this process through a pipe. For an address that does not exist, the
// kernel then returns EFAULT. A direct read of the address would end the process.
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

// whole returns EFAULT if n, the number of bytes that were read, is less than the length of to. In
// this case, the memory of the process ends after n bytes.
func whole(n int, to []byte, err error) error {
	if err == nil && n != len(to) || errors.Is(err, unix.EIO) {
		return unix.EFAULT
	}
	return err
}

// text copies a string of the caller that ends with a zero byte. It does not read a page after the
// end of the string, because that page may not exist.
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
