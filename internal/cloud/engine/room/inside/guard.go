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

// runGuard starts the room with its socket, files[0], on machines where no namespace ends the
// room's processes together with the room. It waits for the room to end, ends the remaining
// processes, and reports the room's exit status and whether any process remains. The server does
// not talk to it, so that it ends after the room in every case.
func runGuard(c *wire.Conn, files []*os.File) error {
	if len(files) != 1 {
		return fmt.Errorf("%w: a guard with %d files", wire.ErrProtocol, len(files))
	}
	if err := orphan.BecomeReaper(); err != nil {
		return err
	}
	spawn.Supervise(spawn.KeeperProcessors)
	room, err := spawn.Start(os.NewFile(hello.BinaryFD, "binary"), files[0], os.Stderr, &syscall.SysProcAttr{Setsid: true}, spawn.Placement{})
	wire.CloseAll(files)
	if err != nil {
		return fmt.Errorf("start the room: %w", err)
	}
	<-room.Done
	if err := orphan.End(func() ([]int, error) { return orphan.ChildrenOf(os.Getpid()) }); err != nil {
		return err
	}
	return c.Send(wire.Message{Kind: wire.KindReady, Status: int(room.Status())})
}
