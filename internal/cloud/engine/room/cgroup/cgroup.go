//go:build linux

package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Groups are the instance's directories in the control group hierarchies. The instance has one
// directory in each hierarchy with a needed controller, and there one subdirectory for each sandbox.
type Groups struct {
	byController map[string]Hierarchy // "memory", "cpu", "pids"
	Why          map[string]string    // the reasons for the controllers missing in byController
	Unbounded    error                // reason why all processes together are not limited
	freezer      freezers
	above        Hierarchy // the server's own memory group; its Dir is "" if no group counts kills
}

// Hierarchy is a group in one of the hierarchies.
type Hierarchy struct {
	Dir     string // the instance's own directory, e.g. /sys/fs/cgroup/memory/e2bctl-x
	Version int    // version of the hierarchy: 1 or 2
}

// takesThreads reports whether a single thread can join the group. A single thread joins at once. To
// move a whole process, the kernel first stops all forks on the machine for 20 ms. During this time,
// no process or thread can join any group.
func (h Hierarchy) takesThreads() bool { return h.Version == 1 }

// How returns the name of the mechanism that enforces the limits of a controller, for the report. It
// returns "" if there is no mechanism.
func (g *Groups) How(controller string) string {
	if h, ok := g.byController[controller]; ok {
		return fmt.Sprintf("control group v%d", h.Version)
	}
	return ""
}

// Directories returns the instance's own directories, without duplicates.
func (g *Groups) Directories() []string {
	var dirs []string
	for _, h := range g.byController {
		if !slices.Contains(dirs, h.Dir) {
			dirs = append(dirs, h.Dir)
		}
	}
	if g.freezer.home != "" {
		dirs = append(dirs, g.freezer.dir)
	}
	return dirs
}

// Create makes the instance's groups in every hierarchy in which this process is permitted to make
// groups. If the machine refuses a group, Create records the reason in Why and continues.
//
// processes limits the number of processes in all these groups together. If 1/part of the limit of a
// group above them is lower than processes, Create sets this lower limit.
func Create(name string, processes, part int64) *Groups {
	mounts, err := mounts()
	g := createIn(mounts, err, name, []string{"memory", "cpu", "pids"})
	g.above = memoryGroup(mounts)
	if h, ok := g.byController["pids"]; ok {
		g.Unbounded = h.limitProcesses(processes, part)
	}
	g.addFreezer(mounts, name)
	return g
}

// limitProcesses limits the processes of the instance's group.
func (h Hierarchy) limitProcesses(most, part int64) error {
	for _, limit := range processLimits(filepath.Dir(h.Dir)) {
		most = min(most, limit.Max/part)
	}
	return os.WriteFile(filepath.Join(h.Dir, "pids.max"), strconv.AppendInt(nil, most, 10), 0)
}

func createIn(mounts []mount, err error, name string, controllers []string) *Groups {
	g := &Groups{byController: make(map[string]Hierarchy), Why: make(map[string]string)}
	if err == nil {
		err = errors.New("no control group controller")
	}
	var unified []string // controllers that no version 1 hierarchy has
	for _, controller := range controllers {
		g.Why[controller] = err.Error()
		i := slices.IndexFunc(mounts, func(m mount) bool { return m.version == 1 && slices.Contains(m.controllers, controller) })
		if i < 0 {
			unified = append(unified, controller)
			continue
		}
		g.made(controller, Hierarchy{Dir: filepath.Join(mounts[i].own, name), Version: 1}, mkdirGroup(filepath.Join(mounts[i].own, name)))
	}
	for _, m := range mounts {
		if m.version == 2 {
			g.createUnified(m, name, unified)
			for _, controller := range unified {
				if why := g.Why[controller]; why != "" {
					g.Why[controller] = why + "; " + delegation
				}
			}
			break // a process is in one group of the hierarchy, however often it is mounted
		}
	}
	return g
}

// delegation is the remedy for an ordinary user. This process must be permitted to make groups in a
// version 2 group above its own group. In a scope of the user's own systemd, the group above is the
// slice.
const delegation = "a group that is delegated to this user mends that: systemd-run --user --scope -p Delegate=yes COMMAND, or a unit with Delegate=yes and DelegateSubgroup=server"

// made records the group that was made for a controller, or the error that prevented the group.
func (g *Groups) made(controller string, h Hierarchy, err error) {
	if err != nil {
		g.Why[controller] = err.Error()
		return
	}
	delete(g.Why, controller)
	g.byController[controller] = h
}

// createUnified makes one group for all the controllers, because a process can be in only one group
// of a version 2 hierarchy. A group that contains processes, such as this process's own group,
// cannot enable controllers for its children. Therefore createUnified makes the new group in a group
// above this process's own group: in the nearest of those that can enable the most controllers.
func (g *Groups) createUnified(m mount, name string, controllers []string) {
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
				g.made(controller, Hierarchy{Dir: group, Version: 2}, errs[i])
			}
		case best == "":
			for i, controller := range controllers {
				g.Why[controller] = errs[i].Error()
			}
		}
		if best != group {
			_ = os.Remove(group) // it is empty, regardless of its place
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

// delegate makes the group name in dir, and enables the controller for the group's own children.
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

// OpenHome opens the home of every placement: the server's own groups. The room's other threads are
// also in these groups, and not in the instance's groups. In the instance's groups they would count
// towards the limit of all sandboxes together, and the room must not end when that limit is reached.
func (g *Groups) OpenHome() ([]*os.File, error) {
	home := takingThreads(slices.Collect(maps.Values(g.byController)))
	for i, h := range home {
		home[i].Dir = filepath.Dir(h.Dir)
	}
	return openGroups(home)
}
