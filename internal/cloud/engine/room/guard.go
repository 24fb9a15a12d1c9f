//go:build linux

package room

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// runGuard starts the room with its socket, files[0], on machines where no
// namespace ends the room's processes together with the room. It waits for the room
// to end, ends the processes that are left, and reports whether any remain. The
// server does not talk to it, so that it ends after the room, whatever happens to
// the server.
func runGuard(c *control, files []*os.File) error {
	if len(files) != 1 {
		return fmt.Errorf("%w: a guard with %d files", ErrProtocol, len(files))
	}
	if err := becomeReaper(); err != nil {
		return err
	}
	room, err := start(os.NewFile(binaryFD, "binary"), files[0], os.Stderr, &syscall.SysProcAttr{Setsid: true}, birthplace{})
	closeAll(files)
	if err != nil {
		return fmt.Errorf("start the room: %w", err)
	}
	<-room.done
	if err := endOrphans(func() ([]int, error) { return childrenOf(os.Getpid()) }); err != nil {
		return err
	}
	return c.send(message{Kind: kindReady})
}

// startGuard starts the guard, which starts the room. The guard's final report can
// be received from its socket, even after the guard is gone.
func (r *Room) startGuard(ctx context.Context, room, stderr *os.File) (*process, *control, error) {
	line, fd3, err := controlPair(maxMessage)
	if err != nil {
		return nil, nil, err
	}
	guard, err := start(r.binary, fd3, stderr, &syscall.SysProcAttr{Setsid: true}, birthplace{})
	fd3.Close()
	if err != nil {
		line.close()
		return nil, nil, err
	}
	if err := line.greet(ctx, roleGuard, struct{}{}, room); err != nil {
		guard.kill()
		line.close()
		return nil, nil, err
	}
	return guard, line, nil
}

// verdict returns the guard's final report: nil if no process is left, else the
// reason why there may be some.
func verdict(guard *control) error {
	defer guard.close()
	_, _, err := guard.expect(kindReady, 0)
	if errors.Is(err, errPeerEnded) {
		return errors.New("the process that was to end them was ended itself")
	}
	return err
}
