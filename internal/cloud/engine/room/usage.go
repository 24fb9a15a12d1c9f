//go:build linux

package room

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
)

// Usage returns the sandbox's usage. If control groups count the usage, Usage returns their
// numbers. Otherwise it returns the sum over the processes, without files that they keep in memory.
// Without namespaces, the usage of the disk is the usage of the host's disk.
func (s *Sandbox) Usage() (engine.Usage, bool) { return s.usage(s.share.group) }

// usage is like Usage, with the numbers of a group. If group is nil, no group counts the usage.
func (s *Sandbox) usage(group *cgroup.Group) (engine.Usage, bool) {
	if s.life.err() != nil {
		return engine.Usage{}, false
	}
	var usage engine.Usage
	disk, ok := s.room.runner.disk(s)
	if !ok {
		return engine.Usage{}, false
	}
	usage.DiskTotal = disk.Blocks * uint64(disk.Bsize)
	usage.Disk = usage.DiskTotal - min(usage.DiskTotal, disk.Bavail*uint64(disk.Bsize))
	memory, counted := countedMemory(group)
	usage.Memory, usage.Cache = memory.Used(), memory.Cache
	processor, timed := group.ProcessorTime()
	usage.CPU = processor
	if counted && timed {
		return usage, true
	}
	pids, err := s.processes()
	if err != nil {
		return engine.Usage{}, false
	}
	for _, pid := range pids {
		if !counted {
			usage.Memory += privateMemory(pid)
		}
		if !timed {
			usage.CPU += processorTime(pid)
		}
	}
	return usage, true
}

// countedMemory returns the memory that a group counts. If the group does not count memory, it
// returns false.
func countedMemory(group *cgroup.Group) (cgroup.Memory, bool) {
	f, err := group.OpenMemoryUse()
	if f == nil || err != nil {
		return cgroup.Memory{}, false
	}
	defer f.Close()
	return cgroup.ReadMemory(f)
}

// processes returns the processes of the sandbox, in this process's numbering.
func (s *Sandbox) processes() ([]int, error) {
	envd, err := s.process.pid()
	if err != nil {
		return nil, err
	}
	return members{Sandbox: s, envd: envd}.List()
}

// privateMemory returns the memory of a process without shared pages. If the process has ended, it
// returns 0.
func privateMemory(pid int) uint64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	var size, resident, shared uint64
	if _, err := fmt.Sscan(string(text), &size, &resident, &shared); err != nil || shared > resident {
		return 0
	}
	return (resident - shared) * uint64(os.Getpagesize())
}

// processorTime returns the processor time of a process and of the children that the process has
// waited for. If the process has ended, it returns 0.
func processorTime(pid int) time.Duration {
	const tick = 10 * time.Millisecond // one tick of USER_HZ, which is 100 on every Linux
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name of the program is in parentheses and may contain any character.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	const user, childrensSystem = 11, 14
	if len(fields) <= childrensSystem {
		return 0
	}
	var used time.Duration
	for _, field := range fields[user : childrensSystem+1] {
		ticks, _ := strconv.ParseInt(field, 10, 64) // the kernel's own numbers
		used += time.Duration(ticks) * tick
	}
	return used
}
