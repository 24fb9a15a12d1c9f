//go:build linux

package inside

import (
	"fmt"
	"os"
	"syscall"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/hello"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/orphan"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// runGuard starts the room with the room's control socket. It is for machines where no namespace
// ends the room's processes together with the room. runGuard waits for the room to end, and ends
// the remaining processes. Then it reports the room's exit status, and whether any process remains.
// The server sends the guard no messages, so that the guard always ends after the room.
func runGuard(c *wire.Conn, files *wire.Files) error {
	control, err := files.Take(wire.FileRoom)
	if err != nil {
		return err
	}
	if err := orphan.BecomeReaper(); err != nil {
		return err
	}
	spawn.Supervise(spawn.KeeperProcessors)
	room, err := spawn.Start(os.NewFile(hello.BinaryFD, "binary"), control, os.Stderr, &syscall.SysProcAttr{Setsid: true}, spawn.Placement{})
	control.Close()
	if err != nil {
		return fmt.Errorf("start the room: %w", err)
	}
	<-room.Done
	if err := orphan.End(func() ([]int, error) { return orphan.ChildrenOf(os.Getpid()) }); err != nil {
		return err
	}
	return c.Send(wire.Message{Kind: wire.KindReady, Status: int(room.Status())})
}
