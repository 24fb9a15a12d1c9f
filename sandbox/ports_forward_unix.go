//go:build unix

package sandbox

import (
	"net"
	"syscall"
)

// stopListening makes a socket refuse connections, even if another process holds it. A process
// that this one is starting has a copy of the descriptor until its program begins. Until then
// it would accept connections, although the listener is closed.
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
