//go:build linux

package room

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// envdThreads is added to the limit of processes and threads of a sandbox's control group. These
// additional threads are for envd, which crashes if it cannot start a thread.
const envdThreads = 128

// direct has the answers that the runners share whose programs run on the machine's kernel.
type direct struct{}

func (direct) openers(processes int) int { return processes }

// ownLimits returns the limits of memory and processes where no control group has them.
func (direct) ownLimits(s *Sandbox) (limits []wire.Rlimit, err error) {
	if s.room.groups.How("memory") == "" {
		limits = append(limits, wire.Rlimit{unix.RLIMIT_DATA, uint64(s.limits.MemoryBytes) + s.room.options.ReservedBytes})
	}
	if most, limited := s.processLimit(); limited {
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

// groupLimits adds threads for envd to the limit of the group. In namespaces, the sandbox's own
// processes have a limit without these threads, too: see ownLimits.
func (namespaces) groupLimits(limits engine.Limits) engine.Limits {
	limits.MaxProcesses += envdThreads
	return limits
}

func (namespaces) takeBuilt(s *Sandbox, files *wire.Files) (err error) {
	if s.files, err = files.Take(wire.FileFiles); err != nil {
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
