//go:build linux

package spawn

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Placement is the cgroup placement of a new process. The process starts in the groups of the
// thread that starts it. A Placement contains only hierarchies that accept single threads. If the
// process begins a user namespace, the thread's user makes that namespace, and the thread's limits
// apply to everything that the kernel counts in the namespace.
type Placement struct {
	Groups    []*os.File // groups that the process joins before its start
	Home      []*os.File // the thread's own groups, to which it returns
	Owner     int        // the user who makes the user namespace; 0 means this process's user
	Processes uint64     // the number of processes that the owner may have in namespaces made here; 0 means no limit
}

// start starts a command. It must be called on a locked thread. If the error Is [ErrAway], this
// process must exit, because its thread is stuck in the sandbox's cgroup and would be killed
// together with the sandbox.
func (b Placement) start(cmd *exec.Cmd) error {
	if len(b.Groups) == 0 {
		return b.clone(cmd)
	}
	err := joinGroups(b.Groups)
	if err == nil {
		err = b.clone(cmd)
	}
	if away := joinGroups(b.Home); away != nil {
		return errors.Join(err, ErrAway, away)
	}
	return err
}

// ErrAway means that this process must exit, because the state of one of its threads could not be
// restored.
var ErrAway = errors.New("a thread stays what it became to start a process")

// clone starts the command as the owner and under the limit on processes. The kernel records the
// owner and the limit when it makes the user namespace.
func (b Placement) clone(cmd *exec.Cmd) error {
	if b.Processes > 0 {
		restore, err := lendProcesses(b.Processes)
		if err != nil {
			return err
		}
		defer restore()
	}
	if b.Owner == 0 {
		return cmd.Start()
	}
	return asUser(b.Owner, cmd.Start)
}

// lendProcesses lowers the limit on processes until restore is called. The limit applies to the
// whole process, so its other threads are limited as well. These threads must not be subject to a
// limit that sandboxes reach, so the time is kept short.
func lendProcesses(limit uint64) (restore func(), err error) {
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &own); err != nil {
		return nil, os.NewSyscallError("getrlimit", err)
	}
	lent := unix.Rlimit{Cur: min(limit, own.Cur), Max: own.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &lent); err != nil {
		return nil, os.NewSyscallError("setrlimit", err)
	}
	// Raising the limit back to its earlier value needs no privilege.
	return func() { _ = unix.Setrlimit(unix.RLIMIT_NPROC, &own) }, nil
}

// asUser calls f while this thread, and no other, has id as its effective user id. The thread keeps
// all its capabilities. asUser must be called on a locked thread of root. The kernel resets two
// settings of a thread that changes its user. asUser restores them.
func asUser(id int, f func() error) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&header, &have[0]); err != nil {
		return os.NewSyscallError("capget", err)
	}
	dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil {
		return os.NewSyscallError("prctl", err)
	}
	atParentsEnd, err := parentDeathSignal()
	if err != nil {
		return err
	}
	err = setEffectiveUser(id)
	if err == nil {
		err = unix.Capset(&header, &have[0])
		if err == nil {
			err = f()
		}
	}
	back := errors.Join(setEffectiveUser(0), unix.Capset(&header, &have[0]))
	if back == nil && dumpable == 1 {
		back = unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
	}
	if back == nil && atParentsEnd != 0 {
		back = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(atParentsEnd), 0, 0, 0)
	}
	if back != nil {
		return errors.Join(err, ErrAway, back)
	}
	return err
}

// parentDeathSignal returns the signal that this thread gets when its parent ends.
func parentDeathSignal() (signal int32, err error) {
	if _, _, errno := unix.RawSyscall(unix.SYS_PRCTL, unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&signal)), 0); errno != 0 {
		return 0, os.NewSyscallError("prctl", errno)
	}
	return signal, nil
}

// setEffectiveUser changes the effective user of this thread only. Go's own calls change all
// threads.
func setEffectiveUser(id int) error {
	const same = ^uintptr(0)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, uintptr(id), same); errno != 0 {
		return os.NewSyscallError("setresuid", errno)
	}
	return nil
}

// joinGroups moves this thread into groups.
func joinGroups(groups []*os.File) error {
	for _, g := range groups {
		if _, err := g.WriteString("0"); err != nil {
			return fmt.Errorf("join a control group: %w", err)
		}
	}
	return nil
}
