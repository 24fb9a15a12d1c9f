//go:build linux

package room

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// ErrRoomEnded means that the room, and so every sandbox, has ended.
var ErrRoomEnded = fmt.Errorf("the room %w", engine.ErrEnded)

// roomProcess is the process that starts the sandboxes, and whose end is theirs. The zero value has
// not been started.
type roomProcess struct {
	first   *spawn.Process // the room's process, or the guard if sandboxes run in place
	control *wire.Conn
	stop    func() (syscall.WaitStatus, error) // ends the room, and returns its status, and an error if processes may be left
	done    chan struct{}                      // closed when the room has ended and all its sandboxes have been notified; nil before the room serves
	ended   atomic.Pointer[error]              // the reason why the room ended by itself
	stderr  stderr                             // the output of the room's processes
}

// started records a process that has just been started, in place of one of another level.
func (p *roomProcess) started(first *spawn.Process, control, guard *wire.Conn) {
	p.first, p.control, p.done = first, control, nil
	p.stop = sync.OnceValues(func() (syscall.WaitStatus, error) { return stopRoom(first, control, guard) })
	p.ended.Store(nil) // it may be from another level
}

// stopRoom ends the room's process. With namespaces, the kernel then ends everything in them.
// Without namespaces, the room ends the processes when its socket closes. After the end of the
// room, the guard ends the remaining processes, and reports any process that is still left. status
// is the exit status of the room's process.
func stopRoom(room *spawn.Process, conn, guard *wire.Conn) (status syscall.WaitStatus, err error) {
	conn.Close()
	if guard == nil {
		room.Kill()
		return room.Status(), nil
	}
	<-room.Done
	return verdict(guard)
}

// lost ends the room after its process was lost because of cause. It returns the
// reason for the room's end, and an error if processes may be left.
func (p *roomProcess) lost(cause error) (why, left error) {
	status, left := p.stop()
	why = causeOfEnd(status, cause)
	p.ended.Store(&why)
	return why, left
}

// causeOfEnd returns the reason for the end of the room. err is the error that caused the stop of
// the room.
func causeOfEnd(status syscall.WaitStatus, err error) error {
	switch {
	case !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET):
		return fmt.Errorf("%w: %w", ErrRoomEnded, err)
	case status.Signaled():
		return fmt.Errorf("%w: its process was ended by signal %d (%v)", ErrRoomEnded, int(status.Signal()), status.Signal())
	}
	return fmt.Errorf("%w: its process exited with status %d", ErrRoomEnded, status.ExitStatus())
}

// err returns nil while the room runs. Afterwards it returns the reason for the room's end.
func (p *roomProcess) err() error {
	if why := p.ended.Load(); why != nil {
		return *why
	}
	return nil
}

// end ends the room's process and everything in it.
func (p *roomProcess) end() error {
	if p.control == nil {
		return nil
	}
	_, err := p.stop()
	if p.done != nil {
		<-p.done
	}
	p.stderr.reading.Wait()
	if err != nil {
		return fmt.Errorf("%w: %w", engine.ErrProcessesLeft, err)
	}
	return nil
}
