//go:build linux

package room

import (
	"fmt"
	"math"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/counter"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
)

const (
	// serverThreads is the number of the server's threads beyond one for each processor.
	serverThreads = 8
	// zygoteProcesses is the number of processes and threads of the zygote, including those that
	// it is forking. Without namespaces, a guard runs instead of a zygote.
	zygoteProcesses = 8
	// minProcesses is the number of processes and threads that one sandbox needs: its envd, and
	// a kernel.
	minProcesses = 24
)

// planProcesses returns the maximum number of processes and threads of all sandboxes together.
// wanted is the requested number. planProcesses also makes the threads of the server, before the
// first sandbox starts.
func planProcesses(wanted int64) (int64, error) {
	if wanted == 0 {
		most, err := machineProcesses()
		if err != nil {
			return 0, err
		}
		wanted = most / counter.CloudPart
	}
	limits, err := cgroup.ProcessLimits()
	if err != nil {
		return 0, err
	}
	own := ownProcesses()
	for _, limit := range limits {
		left, err := shareProcesses(limit, own)
		if err != nil {
			return 0, err
		}
		wanted = min(wanted, left)
	}
	spawn.ReserveThreads(runtime.GOMAXPROCS(0) + serverThreads)
	return wanted, nil
}

// ownProcesses returns the number of further processes and threads that the server needs: for itself,
// and for all processes that it starts in addition to sandboxes.
func ownProcesses() int64 {
	server := runtime.GOMAXPROCS(0) + serverThreads
	keeper, room := spawn.ThreadsOf(spawn.KeeperProcessors), spawn.ThreadsOf(spawn.RoomProcessors)
	return int64(server + keeper + room + max(keeper, zygoteProcesses))
}

// shareProcesses returns the number of processes that sandboxes may have in a control group. It is
// half of the limit of the group, or the number that remains after the server and the other
// processes of the group.
func shareProcesses(limit cgroup.ProcessLimit, own int64) (int64, error) {
	left := min(limit.Max/counter.CloudPart, limit.Max-limit.Used-own)
	if left < minProcesses {
		return 0, fmt.Errorf("the control group of this process allows %d processes and threads, of which %d are in use (%s/pids.max): a local cloud needs at least %d here; raise the limit, in a container with docker run --pids-limit",
			limit.Max, limit.Used, limit.Dir, max(minProcesses*counter.CloudPart, limit.Used+own+minProcesses))
	}
	return left, nil
}

// machineProcesses returns the maximum number of processes and threads that the machine allows for
// all users. If the maximum for this process's user is lower, it returns the user's maximum.
func machineProcesses() (int64, error) {
	most := int64(math.MaxInt64)
	for _, name := range []string{"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"} {
		n, err := cgroup.ReadNumber(name)
		if err != nil {
			return 0, err
		}
		most = min(most, n)
	}
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &own); err != nil {
		return 0, os.NewSyscallError("getrlimit", err)
	}
	if own.Cur < uint64(most) {
		most = int64(own.Cur)
	}
	return most, nil
}
