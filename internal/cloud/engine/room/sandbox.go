//go:build linux

package room

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// Bounds of one sandbox that the server enforces. Package wire contains the bounds that envd
// enforces too.
const (
	maxEgress    = 320     // connections out of the sandbox, including those of its proxy
	maxOpenFiles = 1 << 19 // open files of one process in the sandbox
	bootTimeout  = 30 * time.Second

	restoreTimeout = 15 * time.Minute // additional time for a start with saved files
)

// Sandbox is a running sandbox. It is safe for concurrent use. The caller must
// close it.
type Sandbox struct {
	room    *Room
	options engine.SandboxOptions
	share   allotment
	purpose purpose
	number  uint64
	slot    uint32
	envd    *wire.Conn
	// mounter is the connection to a process that can replace the file system while the sandbox is
	// warm; nil without such a process.
	mounter *wire.Conn
	process firstProcess
	files   sandboxFiles
	traffic traffic
	kernels kernelForks
	ttys    terminals // the terminals opened for the sandbox
	pause   pause
	life    lifetime
}

// purpose is the reason for which a sandbox is made.
type purpose int

const (
	forUse   purpose = iota
	forPool          // made in advance
	forProbe         // made to test the machine
)

// NewSandbox starts a sandbox and returns when its envd is ready. ctx bounds only
// the start.
func (r *Room) NewSandbox(ctx context.Context, o engine.SandboxOptions) (*Sandbox, error) {
	s, err := r.newSandbox(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("room: start sandbox %.63s: %w", o.ID, err)
	}
	return s, nil
}

// roomSaid handles a message of the room about this sandbox.
func (s *Sandbox) roomSaid(m wire.Message, files *wire.Files, ended error) {
	defer files.Close()
	switch m.Kind {
	case wire.KindSpawned:
		pidfd, err := files.Take(wire.FilePidfd)
		s.process.spawned <- spawned{pidfd: pidfd, err: err}
	case wire.KindNamed, wire.KindResized:
		var err error
		if m.Error != "" {
			err = errors.New(m.Error)
		}
		s.process.answer(err)
	case wire.KindSockets:
		s.giveSockets(m, files)
	case wire.KindFailed:
		s.process.spawned <- spawned{err: errors.New(m.Error)}
		s.process.gone()
	case wire.KindEnding:
		s.process.dies(m.Status)
		s.share.group.StopForks()
	case wire.KindExited:
		select {
		case <-s.process.exited:
			return // the room has ended
		default:
		}
		var left error
		if m.Error != "" {
			left = fmt.Errorf("%w: %s", engine.ErrProcessesLeft, m.Error)
		}
		if ended != nil {
			s.life.fail(ended)
		}
		s.process.exits(m.Status, left)
	}
}

func (r *Room) killProcess(s *Sandbox) {
	_ = r.process.control.Send(wire.Message{Kind: wire.KindKill, ID: s.number}) // if the room is gone, so is the process
}

// killForks kills the processes in the sandbox's control groups. These include the processes that
// fork kernels, although those processes are outside the sandbox's pid namespace. If the sandbox is
// frozen, a process that forks a kernel may be stopped before it has waited for its child in the
// namespace. The namespace cannot end before that wait.
func (s *Sandbox) killForks() {
	pids, _, err := s.share.group.Processes()
	if err != nil {
		return // the group is gone, and with it its processes
	}
	for _, pid := range pids {
		if pid > 0 {
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended already
		}
	}
}

// Done returns a channel that is closed when the reason for the sandbox's end is known. When Close
// returns nil, the sandbox's processes have ended, and its files and control groups are removed.
func (s *Sandbox) Done() <-chan struct{} { return s.life.done }

// Err returns nil before the sandbox's end. Then it returns the reason for the end:
// [engine.ErrClosed], [engine.ErrOutOfMemory], [ErrRoomEnded], [ErrProtocol] or the status of envd.
func (s *Sandbox) Err() error { return s.life.err() }

// OOMKills returns the number of processes of the sandbox that were killed because the sandbox
// reached its memory limit. If no control group limits the sandbox, the number includes killed
// processes of the server and of all sandboxes. If killed processes are not counted at all, the
// number is always 0.
func (s *Sandbox) OOMKills() int {
	if s.share.group == nil {
		return 0
	}
	return s.share.group.OOMKills()
}

// Close ends the sandbox. When it returns nil, everything in it is dead, even if it had ended by
// itself. An error that Is [engine.ErrProcessesLeft] means that some of its processes may still
// run. This happens only without namespaces.
func (s *Sandbox) Close() error {
	s.life.fail(engine.ErrClosed)
	return s.life.close()
}

func (s *Sandbox) end() error {
	opened := s.life.end()
	s.room.killProcess(s)
	s.killForks()
	<-s.process.exited
	if s.mounter != nil {
		s.mounter.Close()
	}
	if s.envd != nil {
		s.envd.Close()
	}
	s.traffic.end()
	if opened {
		s.noteCode()
	}
	s.kernels.endAhead()
	s.pause.end()
	s.pause.standstill.Last()
	if s.process.pidfd != nil {
		s.process.pidfd.Close()
	}
	s.files.close()
	err := s.process.left
	if s.share.group != nil {
		removed := s.share.group.Remove()
		if removed == nil && len(s.share.group.Dirs) > 0 {
			err = nil // there was nothing left in it
		}
		err = errors.Join(err, removed)
	}
	err = errors.Join(err, s.room.runner.displace(s))
	s.room.roster.remove(s)
	return err
}
