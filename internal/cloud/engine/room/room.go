//go:build linux

package room

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

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
	runner     runner   // runs the programs of sandboxes; chosen with the level
	runsc      *os.File // gVisor's program; nil: no gVisor
	keeper     *Keeper  // [Options].Keeper, or one that ends with the room
	process    roomProcess
	egressPath wire.EgressPath // the egress path of sandboxes on this machine
	trees      hostTrees
	manifests  manifests
	warm       warmPool
	zygote     zygote
	roster     roster
	close      func() error
}

// runner is one way to run the programs of sandboxes: in namespaces, in gVisor or in place. Each
// method answers a question that has a different answer for each way.
type runner interface {
	// prepare tests the machine for the needs of the runner, and makes the things that all sandboxes share.
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
	defer close(r.process.done)
	for {
		m, files, err := r.process.control.Receive(maxFiles)
		if err != nil {
			// The room is gone, or sent an invalid message and ends with its socket.
			ended := wire.Message{Kind: wire.KindExited}
			why, unended := r.process.lost(err)
			if unended != nil {
				ended.Error = unended.Error()
			}
			for _, s := range r.roster.close() {
				s.roomSaid(ended, nil, why)
			}
			return
		}
		s := r.roster.find(m.ID)
		if s == nil {
			files.Close()
			continue
		}
		s.roomSaid(m, files, nil)
	}
}

// Err returns nil while the room runs. Afterwards it returns the reason for the room's end.
func (r *Room) Err() error { return r.process.err() }

// ranged reports whether a sandbox has a range of ids. With a range it has both a root and a user.
func (r *Room) ranged() bool { return r.ids.ranged }

// Done returns a channel that is closed when the room has ended, by Close or by
// itself.
func (r *Room) Done() <-chan struct{} { return r.process.done }

// Close ends all sandboxes and the room. When Close returns nil, their processes are dead, and the
// control groups and the instance directory are removed, unless they belong to [Options].Keeper. An
// error that Is [engine.ErrProcessesLeft] means that processes may still run. This happens only
// without namespaces. Later calls return the result of the first call.
func (r *Room) Close() error { return r.close() }

func (r *Room) end() error {
	r.trees.private.end()
	r.warm.end()
	r.zygote.end()
	open := r.roster.close()
	var closing sync.WaitGroup
	for _, s := range open {
		closing.Go(func() { _ = s.Close() }) // the keeper removes what this could not
	}
	closing.Wait()
	left := r.process.end()
	r.trees.mappings.close()
	if r.runsc != nil {
		r.runsc.Close()
	}
	if r.options.Keeper == nil && r.keeper != nil {
		left = errors.Join(left, r.keeper.Close())
	}
	if left != nil {
		return fmt.Errorf("room: close: %w", left)
	}
	return nil
}

var _ io.Closer = (*Room)(nil)
