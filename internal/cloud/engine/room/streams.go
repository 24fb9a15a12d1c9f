//go:build linux

package room

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of one sandbox, enforced by the server and kept by its agent.
const (
	maxStreams  = 1024 // connections to its ports
	maxDialling = 128  // connections out of it that are not yet made
	dialTimeout = 10 * time.Second
)

// Answers of the agent to a dial: one byte on the stream.
const (
	statusConnected = 0
	statusClosed    = 1
)

func socketpair(typ int) (*os.File, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, typ|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(fds[0]), "socket"), os.NewFile(uintptr(fds[1]), "socket"), nil
}

// streamPair makes a connected stream: a connection for this process, and a file to
// hand to another process.
func streamPair() (*net.UnixConn, *os.File, error) {
	ours, theirs, err := socketpair(unix.SOCK_STREAM)
	if err != nil {
		return nil, nil, err
	}
	conn, err := unixConn(ours)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return conn, theirs, nil
}

// unixConn takes over f, a connected socket.
func unixConn(f *os.File) (*net.UnixConn, error) {
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

// join copies in both directions until both have ended, and closes both.
func join(a, b net.Conn) {
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
