//go:build linux

package inside

import (
	"net"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/link"
)

// slots divide the descriptors of this process among the kinds of connections, so that no kind of
// connection uses up the descriptors of another kind. The remaining descriptors are for files and
// programs.
type slots struct {
	link.PortSlots // for connections of clients
	// local is for connections of programs in the sandbox to the ports that this process serves.
	local link.Slots
}

// newSlots divides the given number of descriptors, files. A client's connection to the sandbox's
// own ports uses ends descriptors, and every other connection uses one.
func newSlots(files, ends uint64) slots {
	return slots{link.NewPortSlots(files/4, files/2/ends), link.NewSlots(files / 8)}
}

// openFiles returns the maximum number of files that this process may have open. 0 means unknown.
func openFiles() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return limit.Cur
}

// counted is a connection that is counted until it is closed.
type counted struct {
	halfCloser
	release func()
}

// halfCloser is a connection that can be closed in one direction. HTTP servers do this before they
// close a connection.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

func (c *counted) Close() error {
	defer c.release()
	return c.halfCloser.Close()
}

// refuse answers a failed dial of the server. It ignores errors, because the server may no longer
// wait for the answer.
func refuse(conn net.Conn, status byte) {
	_, _ = conn.Write([]byte{status})
	_ = conn.Close()
}
