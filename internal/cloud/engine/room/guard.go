//go:build linux

package room

import (
	"context"
	"errors"
	"os"
	"syscall"
)

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
