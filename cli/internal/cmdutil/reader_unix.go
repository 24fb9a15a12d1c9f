//go:build unix

package cmdutil

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// WatchReader calls lost when the reader of a pipe or socket has closed its end. It does not watch
// writers of other kinds. The caller must call stop, which returns after the watch has ended.
func WatchReader(out io.Writer, lost func()) (stop func()) {
	conn, ok := out.(syscall.Conn)
	if !ok {
		return func() {}
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return func() {}
	}
	stopped, stopping, err := os.Pipe()
	if err != nil {
		return func() {} // the patience of the caller is the limit
	}
	var watch sync.WaitGroup
	watch.Go(func() {
		defer stopped.Close()
		_ = raw.Control(func(fd uintptr) { // it fails if out is closed, after which nobody waits
			if hasHungUp(int32(fd), int32(stopped.Fd())) {
				lost()
			}
		})
	})
	return func() {
		_ = stopping.Close() // it wakes the watch
		watch.Wait()
	}
}

// hasHungUp waits until the other end of fd or of stopped is closed. It reports whether the other
// end of fd is closed.
func hasHungUp(fd, stopped int32) bool {
	for {
		polled := []unix.PollFd{{Fd: fd}, {Fd: stopped}} // errors and hang-ups are reported without being asked for
		_, err := unix.Poll(polled, -1)
		if !errors.Is(err, unix.EINTR) {
			return err == nil && polled[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
		}
	}
}
