//go:build linux

package room

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/counter"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// envdThreads is added to the limit of processes and threads of a sandbox's control group. These
// additional threads are for envd, which crashes if it cannot start a thread.
const envdThreads = 128

// direct has the answers that the runners share whose programs run on the machine's kernel.
type direct struct{ room *Room }

func (direct) openers(processes int) int { return processes }

// ownLimits returns the limits of memory and processes where no control group has them.
func (direct) ownLimits(s *Sandbox) (limits []wire.Rlimit, err error) {
	if s.room.keeper.groups.How("memory") == "" {
		limits = append(limits, wire.Rlimit{unix.RLIMIT_DATA, uint64(s.share.limits.MemoryBytes) + s.room.options.ReservedBytes})
	}
	if most, limited := s.room.runner.processLimit(s); limited {
		var own unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NPROC, &own); err != nil {
			return nil, os.NewSyscallError("getrlimit", err)
		}
		limits = append(limits, wire.Rlimit{unix.RLIMIT_NPROC, min(most, own.Max)})
	}
	return limits, nil
}

func (direct) build(*wire.InitSpec, *wire.Files) error { return nil }

func (direct) saveMemory(context.Context, *Sandbox, string) error { return errors.ErrUnsupported }

func (direct) restores() bool { return false }

func (direct) killed(status syscall.WaitStatus) bool {
	return status.Signaled() && status.Signal() == syscall.SIGKILL
}

func (direct) memoryReport(why map[string]string) string {
	return "not enforced for the sandbox, RLIMIT_DATA for each process: " + why["memory"]
}

// namespaces runs the programs of each sandbox in namespaces of their own.
type namespaces struct{ direct }

// prepare finds the files of the trees to hide, if the server makes the mounts of the trees.
// Otherwise the kernel checks the rights to them inside, too.
func (n namespaces) prepare(ctx context.Context) error {
	n.room.egressPath = wire.EgressTry
	if !n.room.ranged() {
		return nil
	}
	trees := &n.room.trees
	trees.private = newPrivate(filepath.Dir(n.room.options.Dir), n.room.options.Logger)
	return trees.private.find(ctx, surveyed{trees.paths, trees.system}) // the trial of a sandbox may leave out some later
}

func (n namespaces) startRoom(_ context.Context, control, stderr *os.File) (*spawn.Process, *wire.Conn, error) {
	at := spawn.Placement{Processes: n.roomProcesses()}
	if n.room.ids.apart {
		at.Owner = n.room.ids.first
	}
	process, err := spawn.Start(n.room.keeper.binary, control, stderr, roomAttr(n.room.ids), at)
	if err != nil {
		return nil, nil, fmt.Errorf("clone into new namespaces: %w", err)
	}
	return process, nil, nil
}

// roomProcesses returns the maximum number of processes that the owner of the room's namespace may
// have in the namespace; 0 means that the namespace has no limit of its own. With ranges of ids,
// the kernel counts the processes of each sandbox for a different user. So only this limit or a
// control group counts the processes of all sandboxes together.
func (n namespaces) roomProcesses() uint64 {
	if !n.room.ids.ranged || n.room.keeper.groups.How("pids") != "" {
		return 0
	}
	own := int64(spawn.ThreadsOf(spawn.RoomProcessors) + zygoteProcesses)
	return uint64(n.room.options.Processes + own)
}

func (n namespaces) roomSpec() (spec wire.RoomSpec, err error) {
	r := n.room
	if r.roster.counted, err = counter.Read(); err != nil {
		return wire.RoomSpec{}, fmt.Errorf("read the kernel's counts of users: %w", err)
	}
	spec = wire.RoomSpec{Ranged: r.ids.ranged, Counters: r.roster.counted.Part(counter.CloudPart), Processes: uint64(r.options.Processes)}
	spec.Limits, err = countedLimits(counter.CloudPart)
	if r.ids.ranged { // a maximum applies to each sandbox, because each has an owner of its own
		spec.Counters = r.roster.counted.Part(counter.SandboxPart)
		spec.Limits, err = sandboxLimits()
	}
	return spec, err
}

func (n namespaces) describe() {
	if n.room.ranged() {
		n.room.report.IDs = spawn.SlotSize
		return
	}
	n.room.note("root and user are one id without capabilities: directories that belong to the host's root are read-only, and apt cannot install")
}

func (n namespaces) lacks(p engine.Promises) {
	if !n.room.ids.entersDirectories() {
		p.Lack(noDirectories, engine.SharedLayers, engine.Volumes, engine.Mounts, engine.Images)
	}
}

func (n namespaces) egressReport(probe *Sandbox) string {
	if probe.traffic.exit != nil {
		n.room.egressPath = wire.EgressBuild
		return engine.EgressTransparent
	}
	n.room.egressPath = wire.EgressNone
	n.room.note("programs in a sandbox reach the network through the proxy of their environment only: " + probe.traffic.noExit +
		"; to mend it: modprobe nft_tproxy nft_reject_ipv4")
	return "proxy only: " + probe.traffic.noExit
}

func (namespaces) forksKernels() bool { return true }

func (n namespaces) layout() string {
	if n.room.ranged() {
		return fmt.Sprintf("%d ids", spawn.SlotSize)
	}
	return "one id"
}

func (namespaces) place(*Sandbox, *wire.Message) error { return nil }

func (namespaces) displace(*Sandbox) error { return nil }

func (namespaces) disk(s *Sandbox) (disk unix.Statfs_t, ok bool) {
	raw, err := s.files.written.SyscallConn() // fails when the sandbox has been closed
	if err != nil {
		return disk, false
	}
	failed := raw.Control(func(fd uintptr) { err = unix.Fstatfs(int(fd), &disk) })
	return disk, failed == nil && err == nil
}

func (namespaces) addSaved(s *Sandbox, _ *wire.SaveSpec, files *wire.Files) (uintptr, error) {
	files.Lend(wire.FileFiles, s.files.written)
	return syscall.CLONE_NEWUSER, nil
}

func (namespaces) processLimit(s *Sandbox) (uint64, bool) {
	return uint64(s.share.limits.MaxProcesses), true
}

// groupLimits adds threads for envd to the limit of the group. In namespaces, the sandbox's own
// processes have a limit without these threads, too: see ownLimits.
func (namespaces) groupLimits(limits engine.Limits) engine.Limits {
	limits.MaxProcesses += envdThreads
	return limits
}

func (namespaces) takeBuilt(s *Sandbox, files *wire.Files) (err error) {
	if s.files.written, err = files.Take(wire.FileFiles); err != nil {
		return err
	}
	if err := s.keepMeminfo(files); err != nil {
		return fmt.Errorf("keep /proc/meminfo: %w", err)
	}
	return nil
}

// configure makes the room set the hostname.
func (namespaces) configure(s *Sandbox, _ wire.Role, _ *wire.EnvdSpec, _ *wire.Files) error {
	return s.name()
}

func (namespaces) takes(wire.Kind) bool { return false }

func (namespaces) dialler(s *Sandbox) func(context.Context, uint16) (*net.TCPConn, error) {
	return s.dialNetwork
}

func (n namespaces) limitsReport(why map[string]string) (memory, processes string) {
	return n.memoryReport(why), "RLIMIT_NPROC of the user namespace"
}
