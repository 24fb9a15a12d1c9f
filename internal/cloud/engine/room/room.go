//go:build linux

package room

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/counter"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// ErrRoomEnded means that the room, and so every sandbox, has ended.
var ErrRoomEnded = fmt.Errorf("the room %w", engine.ErrEnded)

// Options configures [Start].
type Options struct {
	// Keeper owns the instance directory, the control groups and the binary. They remain after the
	// room has ended. Dir, Binary and Processes are unused if Keeper is set. If Keeper is nil, the
	// room starts a keeper that ends with the room.
	Keeper *Keeper
	// Dir is the instance directory. It must exist and be private to this user. The keeper removes it
	// when the server ends. Files named survey-* in the same parent directory are kept for the next
	// start.
	Dir string
	// Binary is the program to re-execute; "" means this program. It must import
	// package reexec.
	Binary string
	// Isolation is the wanted isolation level. Auto means the strongest level that the machine
	// supports.
	Isolation engine.Isolation
	// Trees are host directories that each sandbox contains at the same path, under a writable overlay
	// that vanishes with the sandbox. /usr always is one of them. Files in Trees that are closed to
	// others may be left out; see the package's comment.
	Trees []string
	// Path is the PATH of login shells; "" means [DefaultPath].
	Path string
	// Processes limits the processes and threads of all sandboxes together; 0 means half of
	// the machine's limit, or of the limit of the server's user. The control groups of the server,
	// such as that of a container, may allow fewer.
	Processes int64
	// Limits are the limits of the test sandbox. They must equal the limits of the cloud's sandboxes.
	Limits engine.Limits
	// Warm are the limits of sandboxes that are started in the background and kept ready for the next
	// [Room.NewSandbox] with these limits. If Warm is nil, no sandbox is kept. WarmCount is the number
	// of kept sandboxes; 0 means one. Each uses the memory of an idle envd, and the memory of its
	// first kernel if Zygote is set.
	Warm      *engine.Limits
	WarmCount int
	// Zygote configures the process from which kernels are forked. Its fields Python and System are
	// used. The process is made in the background, and only with Full isolation. If Zygote is nil, no
	// such process is made. ZygoteLater delays the process until the first request for a kernel. That
	// first kernel then starts cold.
	Zygote      *guest.Config
	ZygoteLater bool
	// Runsc is gVisor's program. If it is set, programs in sandboxes run in gVisor. It needs Full
	// isolation, and a Binary that is not linked to libraries. Empty means no gVisor.
	Runsc string
	// ReservedBytes is the size of the memory that a program of the sandboxes maps at its start and
	// never fills. Where no control group limits memory, ReservedBytes is added to RLIMIT_DATA,
	// because RLIMIT_DATA counts mapped memory and not used memory.
	ReservedBytes uint64
	// Logger logs the messages of the room's processes; nil logs nothing.
	Logger *slog.Logger
}

// DefaultPath is the PATH inside a sandbox, without the directories that [SearchPath] adds.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Room supervises sandboxes. It is safe for concurrent use. The caller must close
// it.
type Room struct {
	options    Options
	level      engine.Isolation
	ids        roomIDs
	report     engine.Report
	trees      []string
	system     int // the number of the first elements of trees that belong to the system
	links      map[string]string
	processors processors
	roots      string   // the directory that contains the directories of sandboxes without namespaces
	binary     *os.File // the program to re-execute, which the keeper opened
	linked     bool     // binary needs libraries to start
	runsc      *os.File // gVisor's program; nil: no gVisor
	runner     runner   // runs the programs of sandboxes; chosen with the level
	groups     *cgroup.Groups
	keeper     *Keeper
	ownKeeper  *Keeper        // the keeper that ends with the room; nil if [Options].Keeper is used instead
	room       *spawn.Process // the room's process, or the guard if sandboxes run in place
	control    *wire.Conn
	stop       func() (syscall.WaitStatus, error) // ends the room, and returns its status, and an error if processes may be left
	done       chan struct{}                      // closed when the room has ended and all its sandboxes have been notified
	ended      atomic.Pointer[error]              // the reason why the room ended by itself
	stderr     stderr                             // the output of the room's processes
	close      func() error

	counted    counter.Maxima // limits of this user, to be divided among the sandboxes
	private    private        // files of the trees to hide
	mappings   mappings
	manifests  manifests
	warm       warmPool
	flows      flowBudget
	egressPath wire.EgressPath // the egress path of sandboxes on this machine
	zygote     zygote
	unusedTime time.Duration // maximum time that a kernel that was forked ahead waits for its first use
	boots      chan struct{} // has an element for each sandbox that is starting without a warm sandbox

	mu        sync.Mutex
	closed    bool
	next      uint64
	slots     map[uint32]bool
	sandboxes map[uint64]*Sandbox // all sandboxes that are not closed yet
}

// runner is one way to run the programs of sandboxes: in namespaces, in gVisor or in place. Each
// method answers a question that has a different answer for each way.
type runner interface {
	// prepare tests the machine for the needs of the runner, and makes what all sandboxes share.
	prepare(ctx context.Context) error
	// startRoom starts the room's process, which has control, and writes to stderr. The process is
	// a guard if guard is not nil.
	startRoom(ctx context.Context, control, stderr *os.File) (process *spawn.Process, guard *wire.Conn, err error)
	// roomSpec returns the specification of the room's process.
	roomSpec() (wire.RoomSpec, error)
	// describe adds the properties of sandboxes in this runner to the room's report.
	describe()
	// lacks records the promises that the runner cannot keep.
	lacks(p engine.Promises)
	// egressReport returns the report's text about the egress of sandboxes, after that of probe was
	// tried.
	egressReport(probe *Sandbox) string
	// forksKernels reports whether kernels can be forked into sandboxes.
	forksKernels() bool
	// layout identifies the layout of saved files. Saved files can be restored only in sandboxes
	// with the same ids and the same directories.
	layout() string
	// place makes the place of s on the host, and completes the request to start s.
	place(s *Sandbox, request *wire.Message) error
	// displace removes the place of s from the host.
	displace(s *Sandbox) error
	// disk describes the file system that s writes to.
	disk(s *Sandbox) (disk unix.Statfs_t, ok bool)
	// addSaved adds the directory with the files of s to the files of the process that saves them,
	// and completes the specification of this process, which runs in new namespaces.
	addSaved(s *Sandbox, spec *wire.SaveSpec, files *wire.Files) (namespaces uintptr, err error)
	// processLimit returns the maximum number of processes and threads of the users of s. It returns
	// false if a limit by user is not possible.
	processLimit(s *Sandbox) (most uint64, limited bool)
	// groupLimits returns the limits of the control groups of a sandbox with limits.
	groupLimits(limits engine.Limits) engine.Limits
	// openers returns the number of processes among which a sandbox's open files are divided.
	openers(processes int) int
	// ownLimits returns the resource limits that every process of s has in this runner only.
	ownLimits(s *Sandbox) ([]wire.Rlimit, error)
	// build adds the needs of the runner to the specification and the files of the first stage.
	build(spec *wire.InitSpec, files *wire.Files) error
	// takeBuilt takes the files that the first stage of s has made for the runner.
	takeBuilt(s *Sandbox, files *wire.Files) error
	// configure adds the needs of the runner to the specification and the files of envd.
	configure(s *Sandbox, as wire.Role, spec *wire.EnvdSpec, files *wire.Files) error
	// takes reports whether envd may send a message of a kind that only some runners know.
	takes(kind wire.Kind) bool
	// dialler returns the function with which the server connects to ports of s. It returns nil if
	// only envd can connect to them.
	dialler(s *Sandbox) func(ctx context.Context, port uint16) (*net.TCPConn, error)
	// stopProcesses stops all processes of s, and returns the function that lets them run again.
	stopProcesses(ctx context.Context, s *Sandbox) (thaw func() error, err error)
	// saveMemory writes the memory of s to dir.
	saveMemory(ctx context.Context, s *Sandbox, dir string) error
	// restores reports whether a sandbox can begin with saved memory.
	restores() bool
	// killed reports whether the memory limit may have ended an envd with this status.
	killed(status syscall.WaitStatus) bool
	// limitsReport returns the report's text for memory and processes that no control group
	// limits, for the reasons why.
	limitsReport(why map[string]string) (memory, processes string)
}

// maxFiles limits the files of a message of the room.
const maxFiles = 2

// serve hands each message of the room to its sandbox.
func (r *Room) serve() {
	defer close(r.done)
	for {
		m, files, err := r.control.Receive(maxFiles)
		if err != nil {
			// The room is gone, or sent an invalid message and ends with its socket.
			ended := wire.Message{Kind: wire.KindExited}
			status, unended := r.stop()
			if unended != nil {
				ended.Error = unended.Error()
			}
			why := r.causeOfEnd(status, err)
			r.ended.Store(&why)
			r.mu.Lock()
			r.closed = true
			left := slices.Collect(maps.Values(r.sandboxes))
			r.mu.Unlock()
			for _, s := range left {
				s.roomSaid(ended, nil, why)
			}
			return
		}
		r.mu.Lock()
		s := r.sandboxes[m.ID]
		r.mu.Unlock()
		if s == nil {
			files.Close()
			continue
		}
		s.roomSaid(m, files, nil)
	}
}

// causeOfEnd returns the reason for the end of the room. err is the error that caused the stop of
// the room.
func (r *Room) causeOfEnd(status syscall.WaitStatus, err error) error {
	switch {
	case !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET):
		return fmt.Errorf("%w: %w", ErrRoomEnded, err)
	case status.Signaled():
		return fmt.Errorf("%w: its process was ended by signal %d (%v)", ErrRoomEnded, int(status.Signal()), status.Signal())
	}
	return fmt.Errorf("%w: its process exited with status %d", ErrRoomEnded, status.ExitStatus())
}

// Err returns nil while the room runs. Afterwards it returns the reason for the room's end.
func (r *Room) Err() error {
	if why := r.ended.Load(); why != nil {
		return *why
	}
	return nil
}

// register reserves the number, the ids and the processors of a new sandbox.
func (r *Room) register(s *Sandbox) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrRoomEnded
	}
	var err error
	if s.slot, err = r.freeSlot(); err != nil {
		return err
	}
	r.next++
	s.number = r.next
	s.share.cpus = r.processors.take(int(math.Ceil(s.share.limits.CPUs)))
	r.sandboxes[s.number] = s
	return nil
}

// freeSlot reserves a slot. The caller must hold mu.
func (r *Room) freeSlot() (slot uint32, err error) {
	slot = 1 // the first slot is the room's own
	for r.slots[slot] {
		slot++
	}
	if slot >= spawn.SlotsCount {
		return 0, fmt.Errorf("%w: %d sandboxes", engine.ErrTooMany, len(r.slots))
	}
	r.slots[slot] = true
	return slot, nil
}

// takeSlot reserves ids that no sandbox uses.
func (r *Room) takeSlot() (slot uint32, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, ErrRoomEnded
	}
	return r.freeSlot()
}

func (r *Room) releaseSlot(slot uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.slots, slot)
}

func (r *Room) release(s *Sandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.processors.release(s.share.cpus)
	delete(r.slots, s.slot)
	delete(r.sandboxes, s.number)
}

// ranged reports whether a sandbox has a range of ids. With a range it has both a root and a user.
func (r *Room) ranged() bool { return r.ids.ranged }

// Done returns a channel that is closed when the room has ended, by Close or by
// itself.
func (r *Room) Done() <-chan struct{} { return r.done }

// Close ends all sandboxes and the room. When Close returns nil, their processes are dead, and the
// control groups and the instance directory are removed, unless they belong to [Options].Keeper. An
// error that Is [engine.ErrProcessesLeft] means that processes may still run. This happens only
// without namespaces. Later calls return the result of the first call.
func (r *Room) Close() error { return r.close() }

func (r *Room) end() error {
	r.private.end()
	r.warm.end()
	r.zygote.end()
	r.mu.Lock()
	r.closed = true
	open := slices.Collect(maps.Values(r.sandboxes))
	r.mu.Unlock()
	var closing sync.WaitGroup
	for _, s := range open {
		closing.Go(func() { _ = s.Close() }) // the keeper removes what this could not
	}
	closing.Wait()
	left := r.endRoom()
	r.mappings.close()
	if r.runsc != nil {
		r.runsc.Close()
	}
	if r.ownKeeper != nil {
		left = errors.Join(left, r.ownKeeper.Close())
	}
	if left != nil {
		return fmt.Errorf("room: close: %w", left)
	}
	return nil
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

// endRoom ends the room's process and everything in it.
func (r *Room) endRoom() error {
	if r.control == nil {
		return nil
	}
	_, err := r.stop()
	if r.done != nil {
		<-r.done
	}
	r.stderr.reading.Wait()
	if err != nil {
		return fmt.Errorf("%w: %w", engine.ErrProcessesLeft, err)
	}
	return nil
}

var _ io.Closer = (*Room)(nil)
