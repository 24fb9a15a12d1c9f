//go:build linux

package room

import (
	"context"
	"errors"
	"os"
	"syscall"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// startGuard starts the guard. The guard then starts the room. The guard's final report can be
// received from the guard's socket, even after the guard has ended.
func (r *Room) startGuard(ctx context.Context, room, stderr *os.File) (*spawn.Process, *wire.Conn, error) {
	conn, fd3, err := wire.Pair(wire.MaxMessage)
	if err != nil {
		return nil, nil, err
	}
	guard, err := spawn.Start(r.keeper.binary, fd3, stderr, &syscall.SysProcAttr{Setsid: true}, spawn.Placement{})
	fd3.Close()
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	if err := conn.Handshake(ctx, wire.RoleGuard, struct{}{}, wire.Lent(wire.FileRoom, room)); err != nil {
		guard.Kill()
		conn.Close()
		return nil, nil, err
	}
	return guard, conn, nil
}

// verdict returns the guard's final report: the room's exit status, and an error. The error is nil if
// no process is left; otherwise it has the reason why processes may be left.
func verdict(guard *wire.Conn) (syscall.WaitStatus, error) {
	defer guard.Close()
	m, _, err := guard.Expect(wire.KindReady, 0)
	if errors.Is(err, wire.ErrPeerEnded) {
		return 0, errors.New("the process that was to end them was ended itself")
	}
	return syscall.WaitStatus(m.Status), err
}
