//go:build linux

package room

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/counter"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/cloud/shortage"
)

// Limits of processes inside. Each applies if the limit of the kernel itself is higher.
const (
	maxQueuedSignals = 1024     // POSIX timers are counted as queued signals
	maxLockedMemory  = 64 << 10 // in bytes
	minOpenFiles     = 256      // with fewer, common programs do not work
	leastOpenFiles   = 64       // with fewer, neither envd nor a kernel can serve anybody
)

// ulimits maps resource limits to the letters of the options of the shell's ulimit, such as n in
// ulimit -n.
var ulimits = map[int]string{
	unix.RLIMIT_CORE: "c", unix.RLIMIT_DATA: "d", unix.RLIMIT_NOFILE: "n", unix.RLIMIT_NPROC: "u",
	unix.RLIMIT_SIGPENDING: "i", unix.RLIMIT_MSGQUEUE: "q", unix.RLIMIT_MEMLOCK: "l",
}

// checkLimits returns an error if a limit of a sandbox is above the limits that this process may
// set.
func checkLimits(limits []wire.Rlimit) error {
	for _, l := range limits {
		var own unix.Rlimit
		if err := unix.Getrlimit(int(l[0]), &own); err != nil {
			return os.NewSyscallError("getrlimit", err)
		}
		if l[1] > own.Max {
			return tooLow(int(l[0]), own.Max, l[1])
		}
	}
	return nil
}

// tooLow returns the error for a limit of this process that is lower than a sandbox needs.
func tooLow(resource int, have, need uint64) error {
	what := "raise ulimit -" + ulimits[resource]
	if resource == unix.RLIMIT_DATA {
		what += ", or give sandboxes less memory"
	}
	return shortage.New(what, fmt.Errorf("the hard limit of this process is %d, and a sandbox needs %d", have, need))
}

// coreLimit returns the core file limit of a sandbox. A sandbox never writes core files. The limit
// is one byte: if core_pattern is a pipe or a socket, any other limit, including zero, lets a program
// on the host read the core. If this process may set only zero, the result depends on core_pattern.
// For a file, coreLimit returns zero, because zero is then enough. For a pipe or a socket, it returns
// an error.
func coreLimit() (uint64, error) {
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &own); err != nil {
		return 0, os.NewSyscallError("getrlimit", err)
	}
	pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	if err != nil {
		return 0, err
	}
	return coreWithin(own.Max, string(pattern))
}

// coreWithin is like coreLimit, but for a process that cannot raise its own limit above most.
func coreWithin(most uint64, pattern string) (uint64, error) {
	if most >= 1 {
		return 1, nil
	}
	if strings.HasPrefix(pattern, "|") || strings.HasPrefix(pattern, "@") {
		return 0, tooLow(unix.RLIMIT_CORE, most, 1)
	}
	return 0, nil
}

// countedLimits returns one n-th of this process's limits, for the resources that the kernel counts
// by user.
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

// openFiles returns the maximum number of files that each process may have open. processes is the
// number of processes among which the files are divided.
func openFiles(processes int) (uint64, error) {
	machine, err := cgroup.ReadNumber("/proc/sys/fs/file-max")
	if err != nil {
		return 0, err
	}
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err != nil {
		return 0, os.NewSyscallError("getrlimit", err)
	}
	share := shareFiles(uint64(machine), own.Max, processes)
	if share < leastOpenFiles {
		return 0, tooLow(unix.RLIMIT_NOFILE, own.Max, 2*leastOpenFiles)
	}
	return share, nil
}

// shareFiles returns the maximum number of open files for each process. If half of the machine's
// files is enough for all processes to work, they have at most that half together. Each process has
// at most half of the server's own limit.
func shareFiles(machine, own uint64, processes int) uint64 {
	share := max(machine/2/uint64(processes), minOpenFiles)
	// The kernel counts descriptors in transit through sockets by user, and refuses
	// to send more above the sender's own limit: a sandbox that shares the server's
	// id could otherwise keep the server from sending any.
	return min(share, own/2, maxOpenFiles)
}
