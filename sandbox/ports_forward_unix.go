//go:build unix

package sandbox

import (
	"net"
	"syscall"
)

// stopListening makes a socket refuse connections, whoever else holds it: a process that
// this one is starting has a copy of the descriptor until its program begins, and connects
// callers for as long, although the listener is closed.
func stopListening(listener net.Listener) {
	socket, ok := listener.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := socket.SyscallConn(); err == nil {
		// Only Linux does this to a socket that listens. Elsewhere it changes nothing.
		_ = raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) })
	}
}
