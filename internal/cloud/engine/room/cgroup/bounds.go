//go:build linux

package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// Bounds returns the lowest limit on memory and the lowest limit on processor time of all groups that
// this process is in, for example the group of a container. Bounds works even if this process may not
// change any group.
func Bounds() (engine.Bounds, error) {
	mounts, err := mounts()
	if err != nil {
		return engine.Bounds{}, err
	}
	return boundsIn(mounts), nil
}

func boundsIn(mounts []mount) (b engine.Bounds) {
	for _, m := range mounts {
		for dir := range upwards(m.own) {
			if memory, limited := memoryLimit(dir, m.version); limited && (b.MemoryBytes == 0 || memory < b.MemoryBytes) {
				b.MemoryBytes = memory
			}
			if cpus, limited := quota(dir, m.version); limited && (b.CPUs == 0 || cpus < b.CPUs) {
				b.CPUs = cpus
			}
		}
	}
	return b
}

// memoryLimit returns the memory limit of a group, from the group's file. For a group without a
// limit, the file contains "max" in version 2. In version 1, it contains a number that no machine's
// memory reaches.
func memoryLimit(dir string, version int) (bytes int64, limited bool) {
	name := "memory.max"
	if version == 1 {
		name = "memory.limit_in_bytes"
	}
	bytes, err := ReadNumber(filepath.Join(dir, name))
	return bytes, err == nil && bytes < unlimited
}

// unlimited is a threshold for memory limits in version 1. A number above this threshold means that
// the group has no limit: version 1 then reports the highest int64, rounded down to whole pages.
const unlimited = 1 << 62

// quota returns the processor time that a group may use, as a number of processors.
func quota(dir string, version int) (cpus float64, limited bool) {
	if version == 1 {
		time, err := ReadNumber(filepath.Join(dir, "cpu.cfs_quota_us"))
		if err != nil || time <= 0 { // -1: no limit
			return 0, false
		}
		period, err := ReadNumber(filepath.Join(dir, "cpu.cfs_period_us"))
		return float64(time) / float64(period), err == nil && period > 0
	}
	text, err := os.ReadFile(filepath.Join(dir, "cpu.max"))
	fields := strings.Fields(string(text))
	if err != nil || len(fields) != 2 {
		return 0, false
	}
	time, err := strconv.ParseFloat(fields[0], 64) // it is "max" if there is no limit
	if err != nil {
		return 0, false
	}
	period, err := strconv.ParseFloat(fields[1], 64)
	return time / period, err == nil && period > 0
}

// memoryGroup returns the group with the memory limit that applies to this process. If no group
// counts the processes that the kernel killed for lack of memory, the Dir of the result is "".
func memoryGroup(mounts []mount) Hierarchy {
	for _, m := range mounts {
		h := Hierarchy{Dir: m.own, Version: m.version}
		if m.version == 2 || slices.Contains(m.controllers, "memory") {
			if _, err := os.Stat(filepath.Join(h.Dir, h.killsFile())); err == nil {
				return h
			}
		}
	}
	return Hierarchy{}
}

// killsFile returns the name of the group's file that has the number of processes killed for lack of
// memory.
func (h Hierarchy) killsFile() string {
	if h.Version == 1 {
		return "memory.oom_control"
	}
	return "memory.events"
}
