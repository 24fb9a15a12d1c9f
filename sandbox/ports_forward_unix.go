//go:build unix

package sandbox

import (
	"net"
	"syscall"
)

// stopListening makes a socket refuse connections, even if another process has it open. A child
// process that is being started has a copy of the file descriptor until its program begins. Until
// then the copy would accept connections, although this process has closed the listener.
func stopListening(listener net.Listener) {
	socket, ok := listener.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := socket.SyscallConn(); err == nil {
		// Only Linux does this for a listening socket. Elsewhere it has no effect.
		_ = raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) })
	}
}
