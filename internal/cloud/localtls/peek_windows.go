package localtls

import (
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

// peek returns the first byte of a connection. The next read returns this byte again.
func peek(conn net.Conn) (byte, error) {
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var first [1]byte
	var n uint32
	var failed error
	waited := false
	err = raw.Read(func(fd uintptr) bool {
		if !waited { // the call below would block the thread, so the runtime waits for the byte
			waited = true
			return false
		}
		flags := uint32(windows.MSG_PEEK)
		failed = windows.WSARecv(windows.Handle(fd), &windows.WSABuf{Len: 1, Buf: &first[0]}, 1, &n, &flags, nil, nil)
		return true
	})
	switch {
	case err != nil:
		return 0, err
	case failed != nil:
		return 0, os.NewSyscallError("wsarecv", failed)
	case n == 0:
		return 0, net.ErrClosed
	}
	return first[0], nil
}
