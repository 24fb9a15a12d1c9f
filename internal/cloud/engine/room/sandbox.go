//go:build linux

package room

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/link"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/place"
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
	limits  engine.Limits // mu guards it and cpus once the sandbox is open
	purpose purpose
	number  uint64
	slot    uint32
	cpus    []int // the processors that the sandbox runs on
	group   *cgroup.Group
	root    *place.Root // the root directory of a sandbox without namespaces
	envd    *wire.Conn
	// mounter is the connection to a process that can replace the file system while the sandbox is
	// warm; nil without such a process.
	mounter *wire.Conn
	pidfd   *os.File // the pidfd of the first process; nil before the process has started
	files   *os.File // the file system that the sandbox writes to; nil without namespaces
	notes   []string
	hidden  []string // trees that are not visible in the sandbox
	unshown *unshown // files to hide in the trees of the sandbox; nil if there are none
	lost    []string // trees that are only in the layers and saved files of the sandbox

	spawned chan spawned       // the room's answer to the request to start the sandbox
	told    chan error         // the room's answer to the request to name or to resize the sandbox
	died    chan struct{}      // closed when envd has ended; other processes may still run for a moment
	exited  chan struct{}      // closed when all processes of the sandbox are gone
	gone    func()             // closes the channel exited
	status  syscall.WaitStatus // the wait status of envd, valid after died is closed
	left    error              // the reason why the room could not end all processes of the sandbox

	slots      link.PortSlots // count the open streams
	sockets    chan sockets   // the room's answers to requests for sockets
	dialling   link.Dialling  // counts the connections out of the sandbox that are not established yet
	carried    flowCount      // counts the connections out of the sandbox
	exit       *exit          // outer end of the egress path; nil: the only way out is envd's proxy
	noExit     string         // the reason why the sandbox has no exit, if an exit was tested
	entrance   link.Entrance  // the connections into the sandbox
	access     *link.Access   // connects the sandbox to the network
	refusing   atomic.Bool    // true once refused connections have been logged
	kernels    kernelForks
	ttys       terminals // the terminals opened for the sandbox
	flows      sync.WaitGroup
	pause      pause
	standstill link.Standstill

	mu      sync.Mutex
	ending  bool
	endLife context.CancelFunc // ends the context that open makes; nil before open

	done   chan struct{}
	reason atomic.Pointer[error]
	close  func() error
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
		s.spawned <- spawned{pidfd: pidfd, err: err}
	case wire.KindNamed, wire.KindResized:
		var err error
		if m.Error != "" {
			err = errors.New(m.Error)
		}
		select {
		case s.told <- err:
		default: // the room was not asked
		}
	case wire.KindSockets:
		s.giveSockets(m, files)
	case wire.KindFailed:
		s.spawned <- spawned{err: errors.New(m.Error)}
		s.gone()
	case wire.KindEnding:
		s.dies(m.Status)
		s.group.StopForks()
	case wire.KindExited:
		select {
		case <-s.exited:
			return // the room has ended
		default:
		}
		if m.Error != "" {
			s.left = fmt.Errorf("%w: %s", engine.ErrProcessesLeft, m.Error)
		}
		if ended != nil {
			s.fail(ended)
		}
		select {
		case s.spawned <- spawned{err: ErrRoomEnded}: // if the request was answered there is no waiting call
		default:
		}
		s.dies(m.Status)
		s.gone()
	}
}

// dies records the wait status of envd, unless it is already recorded. Only the goroutine that
// receives the room's messages calls dies.
func (s *Sandbox) dies(status int) {
	select {
	case <-s.died:
	default:
		s.status = syscall.WaitStatus(status)
		close(s.died)
	}
}

// fail records the reason for the sandbox's end. Later reasons are ignored.
func (s *Sandbox) fail(err error) {
	if s.reason.CompareAndSwap(nil, &err) {
		close(s.done)
	}
}

func (r *Room) killProcess(s *Sandbox) {
	_ = r.control.Send(wire.Message{Kind: wire.KindKill, ID: s.number}) // if the room is gone, so is the process
}

// killForks kills the processes in the sandbox's control groups. These include the processes that
// fork kernels, although those processes are outside the sandbox's pid namespace. If the sandbox is
// frozen, a process that forks a kernel may be stopped before it has waited for its child in the
// namespace. The namespace cannot end before that wait.
func (s *Sandbox) killForks() {
	pids, _, err := s.group.Processes()
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
func (s *Sandbox) Done() <-chan struct{} { return s.done }

// Err returns nil before the sandbox's end. Then it returns the reason for the end:
// [engine.ErrClosed], [engine.ErrOutOfMemory], [ErrRoomEnded], [ErrProtocol] or the status of envd.
func (s *Sandbox) Err() error {
	if reason := s.reason.Load(); reason != nil {
		return *reason
	}
	return nil
}

// OOMKills returns the number of processes of the sandbox that were killed because the sandbox
// reached its memory limit. If no control group limits the sandbox, the number includes killed
// processes of the server and of all sandboxes. If killed processes are not counted at all, the
// number is always 0.
func (s *Sandbox) OOMKills() int {
	if s.group == nil {
		return 0
	}
	return s.group.OOMKills()
}

// Close ends the sandbox. When it returns nil, everything in it is dead, even if it had ended by
// itself. An error that Is [engine.ErrProcessesLeft] means that some of its processes may still
// run. This happens only without namespaces.
func (s *Sandbox) Close() error {
	s.fail(engine.ErrClosed)
	return s.close()
}

func (s *Sandbox) end() error {
	s.mu.Lock()
	s.ending = true
	endLife := s.endLife
	s.mu.Unlock()
	if endLife != nil {
		endLife()
	}
	s.room.killProcess(s)
	s.killForks()
	<-s.exited
	if s.mounter != nil {
		s.mounter.Close()
	}
	if s.envd != nil {
		s.envd.Close()
	}
	s.exit.close()
	s.flows.Wait()
	s.noteCode()
	s.kernels.endAhead()
	s.pause.end()
	s.standstill.Last()
	for _, f := range []*os.File{s.pidfd, s.files} {
		if f != nil {
			f.Close() // closing the second one frees the memory of its files
		}
	}
	err := s.left
	if s.group != nil {
		removed := s.group.Remove()
		if removed == nil && len(s.group.Dirs) > 0 {
			err = nil // there was nothing left in it
		}
		err = errors.Join(err, removed)
	}
	err = errors.Join(err, s.room.runner.displace(s))
	s.room.release(s)
	return err
}
