//go:build linux

package wire

import (
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// SocketPair makes a pair of connected Unix sockets.
func SocketPair(typ int) (*os.File, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, typ|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(fds[0]), "socket"), os.NewFile(uintptr(fds[1]), "socket"), nil
}

// StreamPair makes a connected stream: a connection for this process, and a file to
// hand to another process.
func StreamPair() (*net.UnixConn, *os.File, error) {
	ours, theirs, err := SocketPair(unix.SOCK_STREAM)
	if err != nil {
		return nil, nil, err
	}
	conn, err := UnixConn(ours)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return conn, theirs, nil
}

// UnixConn returns a connection for f, which must be a connected Unix socket. It always closes f.
func UnixConn(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	conn, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errors.New("not a unix socket")
	}
	return conn, nil
}
