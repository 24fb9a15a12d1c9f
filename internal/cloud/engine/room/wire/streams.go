//go:build linux

package wire

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of one sandbox, enforced by the server and kept by its envd.
const (
	MaxStreams  = 1024 // connections to its ports
	MaxDialling = 128  // connections out of it that are not yet made
	DialTimeout = 10 * time.Second
)

// Answers of envd to a dial: one byte on the stream.
const (
	StatusConnected = 0
	StatusClosed    = 1
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

// UnixConn takes over f, a connected socket.
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

// Join copies in both directions until both have ended, and closes both.
func Join(a, b net.Conn) {
	defer a.Close()
	defer b.Close()
	var back sync.WaitGroup
	back.Go(func() { pour(a, b) })
	pour(b, a)
	back.Wait()
}

// pour copies from from to to, and passes the end on if to can be closed in one
// direction. An error ends both directions: there is nobody to report it to.
func pour(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		to.Close()
		from.Close()
		return
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // fails only if the connection is gone, which the peer sees anyway
	}
}
