//go:build linux

package room

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/counter"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// Limits on what processes may have, for limits that the kernel sets higher.
const (
	maxQueuedSignals = 1024     // POSIX timers are counted as queued signals
	maxLockedMemory  = 64 << 10 // bytes
	minOpenFiles     = 256      // fewer are too few for common programs
	// gvisorProcesses is more than the processes of gVisor that open files of the machine: a
	// few have those of all programs in the sandbox.
	gvisorProcesses = 64
)

// countedLimits returns one n-th of what this process may have, for those resource
// limits whose use the kernel counts by user.
func countedLimits(n uint64) ([]wire.Rlimit, error) {
	var limits []wire.Rlimit
	for _, resource := range []int{unix.RLIMIT_SIGPENDING, unix.RLIMIT_MSGQUEUE, unix.RLIMIT_MEMLOCK} {
		var own unix.Rlimit
		if err := unix.Getrlimit(resource, &own); err != nil {
			return nil, os.NewSyscallError("getrlimit", err)
		}
		limits = append(limits, wire.Rlimit{uint64(resource), own.Cur / n})
	}
	return limits, nil
}

// sandboxLimits returns the counted limits of one sandbox.
func sandboxLimits() ([]wire.Rlimit, error) {
	limits, err := countedLimits(counter.SandboxPart)
	for i, l := range limits {
		switch l[0] {
		case unix.RLIMIT_SIGPENDING:
			limits[i][1] = min(l[1], maxQueuedSignals)
		case unix.RLIMIT_MEMLOCK:
			limits[i][1] = min(l[1], maxLockedMemory)
		}
	}
	return limits, err
}

// openFiles returns how many files each process may have open if there are that
// many processes.
func openFiles(processes int) (uint64, error) {
	machine, err := cgroup.ReadNumber("/proc/sys/fs/file-max")
	if err != nil {
		return 0, err
	}
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err != nil {
		return 0, os.NewSyscallError("getrlimit", err)
	}
	return shareFiles(uint64(machine), own.Max, processes), nil
}

// shareFiles keeps all processes together within half of the machine's files, if
// that leaves them enough to work with, and each process within half of the
// server's own limit.
func shareFiles(machine, own uint64, processes int) uint64 {
	share := max(machine/2/uint64(processes), minOpenFiles)
	// The kernel counts descriptors in transit through sockets by user, and refuses
	// to send more above the sender's own limit: a sandbox that shares the server's
	// id could otherwise keep the server from sending any.
	return min(share, own/2, maxOpenFiles)
}
