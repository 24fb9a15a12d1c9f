//go:build linux

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// FreezesWith returns the name of the mechanism that freezes the processes of a group, for the
// report. If there is no mechanism, it returns "" and the reason.
func (g *Groups) FreezesWith() (how string, why error) {
	if g.freezer.dir == "" {
		return "", g.freezer.why
	}
	return "control group v2", nil
}

// freezers has the parent directory of the groups that freeze sandboxes. These groups are of
// version 2, because processes frozen by version 1 cannot be killed. If the server were killed,
// such processes would remain.
type freezers struct {
	dir  string // directory that contains these groups; "" if this process may not freeze
	why  error
	home string // this process's group, from which sandboxes are moved; "" if sandboxes start in the freezing groups
}

// addFreezer finds or makes the parent directory of the groups that freeze. If all controllers are in
// version 1, this directory is an additional group in the version 2 hierarchy, because version 2
// needs no controller to freeze. In this case, a sandbox is moved to a group below the directory at
// its first freeze, and not at its start: to move a process, the kernel stops all forks on the
// machine for some milliseconds.
func (g *Groups) addFreezer(mounts []mount, name string) {
	for _, h := range g.byController {
		if h.Version == 2 {
			g.freezer.dir = h.Dir
			return
		}
	}
	g.freezer.why = errors.New("no version 2 hierarchy")
	if len(g.byController) == 0 {
		g.freezer.why = errors.New("no group lists the processes of a sandbox")
		return
	}
	for _, m := range mounts {
		if m.version == 2 {
			if g.freezer.why = tryFreezer(m.own, name); g.freezer.why == nil {
				g.freezer.dir, g.freezer.home = filepath.Join(m.own, name), m.own
			}
			return
		}
	}
}

// tryFreezer makes a group with the given name in the group own. If processes of own cannot be moved
// to groups below the new group and frozen there, tryFreezer returns an error.
func tryFreezer(own, name string) error {
	if err := openable(filepath.Join(own, "cgroup.procs")); err != nil {
		return err
	}
	dir := filepath.Join(own, name)
	if err := mkdirGroup(dir); err != nil {
		return err
	}
	for _, file := range []string{"cgroup.freeze", "cgroup.procs"} {
		if err := openable(filepath.Join(dir, file)); err != nil {
			return errors.Join(err, os.Remove(dir))
		}
	}
	return nil
}

func openable(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// Freezer freezes the processes of one sandbox. Only one goroutine at a time may use it or remove
// its group.
type Freezer struct {
	dir     string
	home    string // the group to which threads return; see freezers
	members string // the file that lists the threads to move; "" if threads begin in dir
	cpu     string // a group of version 1 whose share of the processors can be lowered; "" if there is none
	made    bool
}

// newFreezer returns the freezer of a group that has been made. If sandboxes cannot be frozen with
// control groups, it returns nil.
func (g *Groups) newFreezer(s *Group, name string) *Freezer {
	if g.freezer.dir == "" {
		return nil
	}
	f := &Freezer{dir: filepath.Join(g.freezer.dir, name), home: g.freezer.home}
	if f.home == "" {
		f.made = true // it is one of s.Dirs
		return f
	}
	f.members = filepath.Join(s.Dirs[0].Dir, "tasks")
	if s.CPU.Version == 1 {
		f.cpu = s.CPU.Dir
	}
	return f
}

// Processes returns the ids of the processes of the group, as this process sees them. known is false
// if there is no group.
func (s *Group) Processes() (pids []int, known bool, err error) {
	if s == nil || len(s.Dirs) == 0 {
		return nil, false, nil
	}
	pids, err = numbersIn(filepath.Join(s.Dirs[0].Dir, "cgroup.procs"))
	return pids, true, err
}

// Freezer returns the freezer of the group's processes. It returns nil if the group has no freezer.
func (s *Group) Freezer() *Freezer {
	if s == nil {
		return nil
	}
	return s.freezer
}

// Freeze stops every process until Thaw, and returns when no process is running. If Freeze fails, or
// ctx ends, no process stays frozen.
func (f *Freezer) Freeze(ctx context.Context) error {
	var err error
	if !f.made {
		err = os.Mkdir(f.dir, 0o755)
		f.made = err == nil
	}
	if err == nil {
		err = f.set("1")
	}
	if err == nil && f.home != "" {
		err = f.gather(ctx)
	}
	if err == nil {
		err = f.await(ctx)
	}
	if err != nil {
		return errors.Join(err, f.Thaw())
	}
	return nil
}

// Thaw lets the processes run again.
func (f *Freezer) Thaw() error {
	err := f.set("0")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil // the group and all its processes are gone
	}
	return err
}

func (f *Freezer) set(value string) error { return put(filepath.Join(f.dir, "cgroup.freeze"), value) }

// quickPasses is the maximum number of passes before the sandbox is slowed down. A pass lists the
// processes and moves them. After one pass, only those processes are missing that other processes
// started during the pass, before they were frozen themselves.
const quickPasses = 3

// gather moves all processes of the sandbox into the freezing group. A process freezes when it is
// moved. Children that the process starts later begin in the freezing group.
func (f *Freezer) gather(ctx context.Context) error {
	to, err := os.OpenFile(filepath.Join(f.dir, "cgroup.procs"), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer to.Close()
	for pass := 0; ; pass++ {
		if pass == quickPasses {
			restore, err := f.slowDown()
			defer restore()
			if err != nil {
				return err
			}
		}
		missing, err := f.missing()
		if err != nil {
			return err
		}
		if len(missing) == 0 {
			return f.release()
		}
		for _, thread := range missing { // with all other threads of its process
			if _, err := to.WriteString(strconv.Itoa(thread)); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("move a process to %s: %w", f.dir, err)
			}
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%d threads were still to be frozen: %w", len(missing), context.Cause(ctx))
		}
	}
}

// missing lists the threads that are not in the freezing group yet. missing compares threads and not
// processes: only one of the versions 1 and 2 lists a process after its first thread has ended.
func (f *Freezer) missing() ([]int, error) {
	here, all, err := f.threads()
	return without(all, here), err
}

// threads lists the threads in the group, and all threads of the sandbox.
func (f *Freezer) threads() (here, all []int, err error) {
	if here, err = numbersIn(filepath.Join(f.dir, "cgroup.threads")); err == nil {
		all, err = numbersIn(f.members)
	}
	return here, all, err
}

// release moves processes that do not belong to the sandbox back to home. Such a process was moved by
// mistake: it had just got the process id of a process of the sandbox that had ended.
func (f *Freezer) release() error {
	here, all, err := f.threads()
	if err != nil {
		return err
	}
	for _, pid := range without(here, all) {
		err := os.WriteFile(filepath.Join(f.home, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// slowDown limits the sandbox to a thousandth of a processor until restore is called. Without this
// limit, the sandbox could start new processes as fast as gather lists processes.
func (f *Freezer) slowDown() (restore func(), err error) {
	if f.cpu == "" {
		return func() {}, nil
	}
	const quota, period = "cpu.cfs_quota_us", "cpu.cfs_period_us"
	was, err := os.ReadFile(filepath.Join(f.cpu, quota))
	if err != nil {
		return func() {}, err
	}
	every, err := os.ReadFile(filepath.Join(f.cpu, period))
	if err != nil {
		return func() {}, err
	}
	write := func(name string, value []byte) error { return os.WriteFile(filepath.Join(f.cpu, name), value, 0) }
	restore = func() {
		// Both fail only if the group is gone.
		_ = write(period, every)
		_ = write(quota, was)
	}
	err = write(period, []byte("1000000"))
	if err == nil {
		err = write(quota, []byte("1000"))
	}
	return restore, err
}

// await waits until no process of the group runs. A process that waits for a disk freezes only after
// the disk has answered.
func (f *Freezer) await(ctx context.Context) error {
	const step = 20 // milliseconds until the end of ctx is noticed
	events, err := os.Open(filepath.Join(f.dir, "cgroup.events"))
	if err != nil {
		return err
	}
	defer events.Close()
	for {
		text := make([]byte, 256)
		n, err := events.ReadAt(text, 0)
		if n == 0 {
			return err
		}
		if slices.Contains(strings.Split(string(text[:n]), "\n"), "frozen 1") {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("processes were still running: %w", context.Cause(ctx))
		}
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(events.Fd()), Events: unix.POLLPRI}}, step); err != nil && !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("poll", err)
		}
	}
}

// numbersIn reads a list of processes or threads, which may contain duplicates.
func numbersIn(file string) ([]int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, field := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 0 { // 0 stands for a process that is invisible to this one
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// without returns those elements of the list all that are not in the list some.
func without(all, some []int) (rest []int) {
	in := make(map[int]bool, len(some))
	for _, pid := range some {
		in[pid] = true
	}
	for _, pid := range all {
		if !in[pid] {
			in[pid] = true
			rest = append(rest, pid)
		}
	}
	return rest
}
