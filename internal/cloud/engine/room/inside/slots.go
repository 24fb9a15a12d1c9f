//go:build linux

package inside

import (
	"net"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// slots divide the descriptors of this process among connections, so that no kind of them
// takes those that another kind needs. What none of the kinds may have is for files and
// programs.
type slots struct {
	wire.PortSlots            // of clients
	local          wire.Slots // of programs in the sandbox, to the ports that this process serves
}

// newSlots divides files descriptors. A connection of a client to the sandbox's own ports has
// ends of them, and each other connection has one.
func newSlots(files, ends uint64) slots {
	return slots{wire.NewPortSlots(files/4, files/2/ends), wire.NewSlots(files / 8)}
}

// openFiles returns how many files this process may have open; 0: the system does not say.
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

// halfCloser is a connection of which one direction can be closed, as servers of HTTP do
// before they close it.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

func (c *counted) Close() error {
	defer c.release()
	return c.halfCloser.Close()
}

// refuse answers a dial of the server that does not succeed. Nobody may be waiting for it
// now.
func refuse(conn net.Conn, status byte) {
	_, _ = conn.Write([]byte{status})
	_ = conn.Close()
}
