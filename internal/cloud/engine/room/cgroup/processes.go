//go:build linux

package cgroup

import (
	"iter"
	"os"
	"path/filepath"
	"slices"
)

// ProcessLimit is the limit on processes and threads of a group of this process.
type ProcessLimit struct {
	Dir  string // the directory of the group
	Max  int64
	Used int64 // number of processes and threads of the group and of the groups below it
}

// ProcessLimits returns the limits of all groups of this process, from its own group up to the
// highest group that is mounted. It works even if this process may not change any group.
func ProcessLimits() ([]ProcessLimit, error) {
	mounts, err := mounts()
	if err != nil {
		return nil, err
	}
	var limits []ProcessLimit
	for _, m := range mounts {
		if m.version == 2 || slices.Contains(m.controllers, "pids") {
			limits = append(limits, processLimits(m.own)...)
		}
	}
	return limits, nil
}

// processLimits returns the limits of a group and of all groups above it. It does not stop at a group
// without a limit, because a group further up may have a limit.
func processLimits(dir string) (limits []ProcessLimit) {
	for dir := range upwards(dir) {
		most, err := ReadNumber(filepath.Join(dir, "pids.max"))
		if err == nil { // without a limit it is "max", or the controller is not passed on to this group
			used, _ := ReadNumber(filepath.Join(dir, "pids.current")) // the same directory, with the same rights
			limits = append(limits, ProcessLimit{Dir: dir, Max: most, Used: used})
		}
	}
	return limits
}

// upwards yields a group and the groups above it, up to the highest mounted group.
func upwards(dir string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for isGroup(dir) && yield(dir) {
			dir = filepath.Dir(dir)
		}
	}
}

// isGroup reports whether a directory is a control group. The parent directory of a mount point is
// not a control group.
func isGroup(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "cgroup.procs"))
	return err == nil
}
