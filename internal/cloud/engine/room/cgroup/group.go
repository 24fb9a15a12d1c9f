//go:build linux

package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// Group contains the control groups of one sandbox.
type Group struct {
	Dirs   []Hierarchy // the groups of the sandbox, without duplicates
	Memory Hierarchy   // the group that limits memory; its Dir is "" if there is none
	CPU    Hierarchy   // the group that limits processor time; its Dir is "" if there is none

	kills   Hierarchy // the group in which kills for lack of memory are counted; its Dir is "" if there is none
	before  int       // the number of kills in that group before this Group was made
	freezer *Freezer  // freezes the processes of the group; nil if there is no freezer
}

// Create makes the groups of a sandbox with its limits.
func (g *Groups) Create(name string, l engine.Limits) (*Group, error) {
	s := &Group{}
	for controller, h := range g.byController {
		dir := filepath.Join(h.Dir, name)
		own := Hierarchy{Dir: dir, Version: h.Version}
		if !slices.Contains(s.Dirs, own) {
			if err := os.Mkdir(dir, 0o755); err != nil {
				return nil, errors.Join(err, s.Remove())
			}
			s.Dirs = append(s.Dirs, own)
		}
		switch controller {
		case "memory":
			s.Memory = own
		case "cpu":
			s.CPU = own
		}
		if err := own.write(settings(controller, h.Version, l)); err != nil {
			return nil, errors.Join(err, s.Remove())
		}
	}
	s.freezer = g.newFreezer(s, name)
	// A sandbox without a memory group dies when the memory of all together has run out.
	if s.kills = s.Memory; s.kills.Dir == "" {
		s.kills = g.above
	}
	s.before = s.OOMKills()
	return s, nil
}

// setting is a value for a file of a group. The file of an optional setting exists only if the kernel
// has a certain feature. A kernel without the feature does not need the setting.
type setting struct {
	file, value string
	optional    bool
}

// settings returns the settings in the order in which the kernel accepts them.
func settings(controller string, version int, l engine.Limits) []setting {
	const period = 100_000 // the period of the processor quota, in µs
	quota := strconv.Itoa(int(l.CPUs * period))
	memory, processes := strconv.FormatInt(l.MemoryBytes, 10), strconv.Itoa(l.MaxProcesses)
	switch {
	case controller == "memory" && version == 1:
		// With swap, memory and swap together are limited.
		return []setting{{"memory.limit_in_bytes", memory, false}, {"memory.memsw.limit_in_bytes", memory, true}}
	case controller == "memory":
		return []setting{{"memory.max", memory, false}, {"memory.swap.max", "0", true}}
	case controller == "pids":
		return []setting{{"pids.max", processes, false}}
	case controller == "cpu" && version == 1:
		return []setting{{"cpu.cfs_period_us", strconv.Itoa(period), false}, {"cpu.cfs_quota_us", quota, false}}
	case controller == "cpu":
		return []setting{{"cpu.max", quota + " " + strconv.Itoa(period), false}}
	}
	return nil
}

// Add moves a process, with all its threads, into those groups of the sandbox that OpenPlacement does
// not open.
func (s *Group) Add(pid int) error {
	for _, h := range s.Dirs {
		if h.takesThreads() {
			continue
		}
		if err := os.WriteFile(filepath.Join(h.Dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return err
		}
	}
	return nil
}

// Yield(true) gives the group only a small share of a processor that other groups of the instance
// also use. Yield(false) restores the group's equal share.
func (s *Group) Yield(yes bool) error {
	name, little, usual := "cpu.weight", "6", "100"
	if s.CPU.Version == 1 {
		name, little, usual = "cpu.shares", "64", "1024"
	}
	if s.CPU.Dir == "" {
		return nil
	}
	value := usual
	if yes {
		value = little
	}
	return os.WriteFile(filepath.Join(s.CPU.Dir, name), []byte(value), 0)
}

// Open opens, in each group of the sandbox, the file through which processes join the group. A process
// with one thread joins the groups by writing "0" to each file. The kernel checks the privileges of
// the process that opened the files, and not those of the writer.
func (s *Group) Open() ([]*os.File, error) { return openGroups(s.Dirs) }

func openGroups(dirs []Hierarchy) (files []*os.File, err error) {
	for _, h := range dirs {
		name := "cgroup.procs"
		if h.takesThreads() {
			name = "tasks"
		}
		f, err := os.OpenFile(filepath.Join(h.Dir, name), os.O_WRONLY, 0)
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// OpenPlacement opens the files of those groups that a single thread can join, for a spawn.Placement.
func (s *Group) OpenPlacement() ([]*os.File, error) { return openGroups(takingThreads(s.Dirs)) }

func takingThreads(dirs []Hierarchy) []Hierarchy {
	return slices.DeleteFunc(slices.Clone(dirs), func(h Hierarchy) bool { return !h.takesThreads() })
}

// OOMKills returns the number of processes of the group that were killed for lack of memory since the
// group was made. If the group does not limit memory, OOMKills counts the killed processes of the
// server's memory group instead.
func (s *Group) OOMKills() int {
	f, err := s.OpenOOMKills()
	if f == nil || err != nil {
		return 0
	}
	defer f.Close()
	return CountOOMKills(f) - s.before
}

// OpenOOMKills opens the file from which OOMKills reads the count. If there is no such file,
// OpenOOMKills returns nil. A process that reads the file learns nothing else about the host.
func (s *Group) OpenOOMKills() (*os.File, error) {
	if s == nil || s.kills.Dir == "" {
		return nil, nil
	}
	return os.Open(filepath.Join(s.kills.Dir, s.kills.killsFile()))
}

// OpenMemoryUse opens the group's memory.stat. If there is no such file, OpenMemoryUse returns nil. A
// process that reads the file learns nothing else about the host.
func (s *Group) OpenMemoryUse() (*os.File, error) {
	if s == nil || s.Memory.Dir == "" {
		return nil, nil
	}
	return os.Open(filepath.Join(s.Memory.Dir, "memory.stat"))
}
