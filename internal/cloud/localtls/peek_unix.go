//go:build unix

package localtls

import (
	"net"
	"os"
	"syscall"
)

// peek returns the first byte of a connection. The next read returns this byte again.
func peek(conn net.Conn) (byte, error) {
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var first [1]byte
	var n int
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		for {
			n, _, failed = syscall.Recvfrom(int(fd), first[:], syscall.MSG_PEEK)
			if failed != syscall.EINTR {
				return failed != syscall.EAGAIN
			}
		}
	})
	switch {
	case err != nil:
		return 0, err
	case failed != nil:
		return 0, os.NewSyscallError("recvfrom", failed)
	case n == 0:
		return 0, net.ErrClosed
	}
	return first[0], nil
}
