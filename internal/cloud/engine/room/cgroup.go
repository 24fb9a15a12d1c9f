//go:build linux

package room

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// groups is the instance's place in the control group hierarchies: one directory in
// each hierarchy with a controller that is wanted, and below it one directory for
// each sandbox.
type groups struct {
	byController map[string]hierarchy // "memory", "cpu", "pids"
	why          map[string]string    // why a controller is not in byController
	unbounded    error                // why all processes together are not limited
}

type hierarchy struct {
	dir     string // the instance's own directory, e.g. /sys/fs/cgroup/memory/e2bctl-x
	version int    // 1 or 2
}

// takesThreads reports whether a single thread can join, without delay. To move a
// whole process the kernel first stops all forks on the machine, which takes it 20
// ms, and nothing can join any group meanwhile.
func (h hierarchy) takesThreads() bool { return h.version == 1 }

// how returns what enforces a limit, for the report.
func (g *groups) how(controller string) string {
	if h, ok := g.byController[controller]; ok {
		return fmt.Sprintf("control group v%d", h.version)
	}
	return ""
}

// directories returns the instance's own directories, each once.
func (g *groups) directories() []string {
	var dirs []string
	for _, h := range g.byController {
		if !slices.Contains(dirs, h.dir) {
			dirs = append(dirs, h.dir)
		}
	}
	return dirs
}

// createGroups makes the instance's groups wherever this process may. It is not an
// error if the machine does not allow it: why then has the machine's answer.
//
// processes is how many there may be in all groups together; the limit is half of
// what this process's own groups allow, if that is less.
func createGroups(name string, processes int64) *groups {
	mounts, err := cgroupMounts()
	g := createGroupsIn(mounts, err, name, []string{"memory", "cpu", "pids"})
	if h, ok := g.byController["pids"]; ok {
		g.unbounded = h.limitProcesses(processes)
	}
	return g
}

// limitProcesses limits the processes of the instance's group.
func (h hierarchy) limitProcesses(most int64) error {
	const name = "pids.max"
	for dir := filepath.Dir(h.dir); ; dir = filepath.Dir(dir) {
		allowed, err := readNumber(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			break // the root of the hierarchy
		}
		if err == nil { // otherwise it says "max"
			most = min(most, allowed/cloudPart)
		}
	}
	return os.WriteFile(filepath.Join(h.dir, name), strconv.AppendInt(nil, most, 10), 0)
}

func createGroupsIn(mounts []cgroupMount, err error, name string, controllers []string) *groups {
	g := &groups{byController: make(map[string]hierarchy), why: make(map[string]string)}
	if err == nil {
		err = errors.New("no control group controller")
	}
	var unified []string // controllers that are in no hierarchy of version 1
	for _, controller := range controllers {
		g.why[controller] = err.Error()
		i := slices.IndexFunc(mounts, func(m cgroupMount) bool { return m.version == 1 && slices.Contains(m.controllers, controller) })
		if i < 0 {
			unified = append(unified, controller)
			continue
		}
		g.made(controller, hierarchy{dir: filepath.Join(mounts[i].own, name), version: 1}, mkdirGroup(filepath.Join(mounts[i].own, name)))
	}
	for _, m := range mounts {
		if m.version == 2 {
			g.createUnified(m, name, unified)
			break // a process is in one group of the hierarchy, however often it is mounted
		}
	}
	return g
}

// made records a group that was made for a controller, or the reason why it was
// not.
func (g *groups) made(controller string, h hierarchy, err error) {
	if err != nil {
		g.why[controller] = err.Error()
		return
	}
	delete(g.why, controller)
	g.byController[controller] = h
}

// createUnified makes one group for all the controllers, because a process can be
// in only one. A group that contains processes, as ours does, cannot hand
// controllers down to its children. Of the groups above it, it uses the nearest one
// that can hand down the most controllers.
func (g *groups) createUnified(m cgroupMount, name string, controllers []string) {
	var best string
	handed := 0
	for dir := m.own; handed < len(controllers); dir = filepath.Dir(dir) {
		group := filepath.Join(dir, name)
		var errs []error
		failed := 0
		for _, controller := range controllers {
			err := delegate(dir, controller, name)
			if err != nil {
				failed++
			}
			errs = append(errs, err)
		}
		switch {
		case len(controllers)-failed > handed:
			if best != "" {
				_ = os.Remove(best) // it is empty
			}
			best, handed = group, len(controllers)-failed
			for i, controller := range controllers {
				delete(g.byController, controller)
				g.made(controller, hierarchy{dir: group, version: 2}, errs[i])
			}
		case best == "":
			for i, controller := range controllers {
				g.why[controller] = errs[i].Error()
			}
		}
		if best != group {
			_ = os.Remove(group) // wherever it was made, it is empty
		}
		if dir == m.point {
			return
		}
	}
}

func mkdirGroup(dir string) error {
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// delegate makes the group name in dir, with the controller handed down to its own
// children.
func delegate(dir, controller, name string) error {
	enable := func(dir string) error {
		have, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
		if err != nil || slices.Contains(strings.Fields(string(have)), controller) {
			return err
		}
		return os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0)
	}
	if err := enable(dir); err != nil {
		return err
	}
	group := filepath.Join(dir, name)
	err := os.Mkdir(group, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return enable(group)
	}
	if err != nil {
		return err
	}
	if err := enable(group); err != nil {
		return errors.Join(err, os.Remove(group))
	}
	return nil
}

type cgroupMount struct {
	point       string // where it is mounted
	own         string // this process's group, as a path
	version     int
	controllers []string // v1
}

// cgroupMounts reads where the hierarchies are mounted and where in them this
// process is.
func cgroupMounts() ([]cgroupMount, error) {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	return parseCgroupMounts(info, own), nil
}

func parseCgroupMounts(mountinfo, own []byte) []cgroupMount {
	paths := make(map[string]string) // by controllers, in the kernel's spelling
	for line := range bytes.Lines(own) {
		parts := strings.SplitN(strings.TrimSpace(string(line)), ":", 3)
		if len(parts) == 3 {
			paths[parts[1]] = parts[2]
		}
	}
	var mounts []cgroupMount
	for line := range bytes.Lines(mountinfo) {
		before, after, ok := strings.Cut(strings.TrimSpace(string(line)), " - ")
		fields, super := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(super) < 3 {
			continue
		}
		m := cgroupMount{point: fields[4], version: 1}
		path, found := "", false
		switch super[0] {
		case "cgroup2":
			m.version = 2
			path, found = paths[""], true
		case "cgroup":
			options := strings.Split(super[2], ",")
			for controllers, p := range paths {
				names := strings.Split(controllers, ",")
				if controllers != "" && !slices.ContainsFunc(names, func(n string) bool { return !slices.Contains(options, n) }) {
					m.controllers, path, found = names, p, true
				}
			}
		}
		if !found {
			continue
		}
		// In a container the mount shows only a part of the hierarchy, from
		// fields[3] down.
		rel, err := filepath.Rel(fields[3], path)
		if err != nil || strings.HasPrefix(rel, "..") {
			rel = "."
		}
		m.own = filepath.Join(m.point, rel)
		mounts = append(mounts, m)
	}
	return mounts
}

// group is the control groups of one sandbox.
type group struct {
	dirs   []hierarchy // each once
	memory hierarchy   // dir is "" if there is none
	cpu    hierarchy   // likewise
}

// create makes the groups of a sandbox with its limits.
func (g *groups) create(name string, l engine.Limits) (*group, error) {
	s := &group{}
	for controller, h := range g.byController {
		dir := filepath.Join(h.dir, name)
		own := hierarchy{dir: dir, version: h.version}
		if !slices.Contains(s.dirs, own) {
			if err := os.Mkdir(dir, 0o755); err != nil {
				return nil, errors.Join(err, s.remove())
			}
			s.dirs = append(s.dirs, own)
		}
		switch controller {
		case "memory":
			s.memory = own
		case "cpu":
			s.cpu = own
		}
		for _, set := range settings(controller, h.version, l) {
			err := os.WriteFile(filepath.Join(dir, set.file), []byte(set.value), 0)
			if err != nil && (!set.optional || !errors.Is(err, fs.ErrNotExist)) {
				return nil, errors.Join(err, s.remove())
			}
		}
	}
	return s, nil
}

// setting is what is written to a file of a group. An optional setting exists only
// on kernels with a certain feature, and only these need it.
type setting struct {
	file, value string
	optional    bool
}

// settings returns the settings in the order in which the kernel accepts them.
func settings(controller string, version int, l engine.Limits) []setting {
	const period = 100_000 // µs
	quota := strconv.Itoa(int(l.CPUs * period))
	memory, processes := strconv.FormatInt(l.MemoryBytes, 10), strconv.Itoa(l.Processes)
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

// add moves a process, with all its threads, into those groups that it was not
// started in.
func (s *group) add(pid int) error {
	for _, h := range s.dirs {
		if h.takesThreads() {
			continue
		}
		if err := os.WriteFile(filepath.Join(h.dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return err
		}
	}
	return nil
}

// yield gives the group little time on a processor that other groups of the
// instance want; yield(false) gives it as much as each of them again.
func (s *group) yield(yes bool) error {
	name, little, usual := "cpu.weight", "6", "100"
	if s.cpu.version == 1 {
		name, little, usual = "cpu.shares", "64", "1024"
	}
	if s.cpu.dir == "" {
		return nil
	}
	value := usual
	if yes {
		value = little
	}
	return os.WriteFile(filepath.Join(s.cpu.dir, name), []byte(value), 0)
}

// open returns the files to which a process with one thread writes "0" in order to
// join the group. The privilege needed is that of the process that opened them.
func (s *group) open() ([]*os.File, error) { return openGroups(s.dirs) }

func openGroups(dirs []hierarchy) (files []*os.File, err error) {
	for _, h := range dirs {
		name := "cgroup.procs"
		if h.takesThreads() {
			name = "tasks"
		}
		f, err := os.OpenFile(filepath.Join(h.dir, name), os.O_WRONLY, 0)
		if err != nil {
			closeAll(files)
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// oomKills returns how many processes of the group were killed for lack of memory.
func (s *group) oomKills() int {
	f, err := s.openOOMKills()
	if f == nil || err != nil {
		return 0
	}
	defer f.Close()
	return countOOMKills(f)
}

// openOOMKills opens the file that contains that number; nil if there is none.
func (s *group) openOOMKills() (*os.File, error) {
	return s.openMemory("memory.oom_control", "memory.events")
}

// openMemoryUse opens the file that says what memory is used for; nil if there is
// none.
func (s *group) openMemoryUse() (*os.File, error) {
	return s.openMemory("memory.stat", "memory.stat")
}

// openMemory opens a file of the group by its names in the two versions of the
// hierarchy. A process that reads it sees nothing else of the host.
func (s *group) openMemory(first, second string) (*os.File, error) {
	switch {
	case s == nil || s.memory.dir == "":
		return nil, nil
	case s.memory.version == 1:
		return os.Open(filepath.Join(s.memory.dir, first))
	}
	return os.Open(filepath.Join(s.memory.dir, second))
}

// readMemoryUse reads from an open file of either version. used is the memory that
// cannot be reclaimed, including files kept in memory; cache is the memory that
// holds copies of what is on disks.
func readMemoryUse(f *os.File) (used, cache uint64, known bool) {
	text := make([]byte, 16<<10) // about fifty short lines
	n, err := f.ReadAt(text, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, 0, false
	}
	values := map[string]uint64{}
	for line := range strings.Lines(string(text[:n])) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			values[name], _ = strconv.ParseUint(value, 10, 64) // the kernel's own number
		}
	}
	// In version 1 only the totals include the groups below.
	for _, names := range [][3]string{{"total_rss", "total_cache", "total_shmem"}, {"anon", "file", "shmem"}} {
		if own, known := values[names[0]]; known {
			files, kept := values[names[1]], values[names[2]]
			return own + kept, files - min(files, kept), true
		}
	}
	return 0, 0, false
}

// countOOMKills reads the current number from an open file.
func countOOMKills(f *os.File) int {
	text := make([]byte, 512) // a few short lines
	n, err := f.ReadAt(text, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0
	}
	for line := range bytes.Lines(text[:n]) {
		if value, ok := bytes.CutPrefix(line, []byte("oom_kill ")); ok {
			kills, _ := strconv.Atoi(string(bytes.TrimSpace(value))) // the kernel's own number
			return kills
		}
	}
	return 0
}

func (s *group) remove() error {
	dirs := make([]string, len(s.dirs))
	for i, h := range s.dirs {
		dirs[i] = h.dir
	}
	return removeGroups(context.Background(), dirs)
}

// stopForks keeps the processes of a group that is about to end from starting
// others.
func (s *group) stopForks() {
	for _, h := range s.dirs {
		stopForks(h.dir)
	}
}

// stopForks ends the processes in a group and below, or keeps them from starting
// others, as far as its controllers and the kernel support that. Processes that
// keep starting others cannot be killed one by one. The freezer of version 1 would
// work too, but frozen processes cannot be killed, and would stay if this process
// ended.
func stopForks(dir string) {
	for _, set := range []setting{{file: "cgroup.kill", value: "1"}, {file: "pids.max", value: "0"}, {file: "cgroup.freeze", value: "1"}} {
		f, err := os.OpenFile(filepath.Join(dir, set.file), os.O_WRONLY, 0)
		if err != nil {
			continue // this group does not have it
		}
		_, err = f.WriteString(set.value)
		f.Close()
		if err == nil {
			return
		}
	}
}

// removeGroups removes groups, which may all contain the same processes.
func removeGroups(ctx context.Context, dirs []string) error {
	for _, dir := range dirs {
		stopForks(dir)
	}
	var errs []error
	for _, dir := range dirs {
		errs = append(errs, removeGroup(ctx, dir))
	}
	return errors.Join(errs...)
}

// removeGroup removes a group and those below it. It kills the processes in it and
// waits for them: a group with a process that is still ending is busy.
func removeGroup(ctx context.Context, dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeGroup(ctx, filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("remove group %s: %w", dir, err)
		}
		procs, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for _, field := range strings.Fields(string(procs)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
				_ = unix.Kill(pid, unix.SIGKILL) // it may have ended already
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove group %s: %w", dir, err)
		case <-tick.C:
		}
	}
}
