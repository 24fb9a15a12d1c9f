//go:build linux

package refusetest

import (
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// namespaces are the flags of clone and unshare that create namespaces.
const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// mountCalls are the calls for mounts that Docker refuses. Docker also refuses the calls for
// namespaces.
var mountCalls = []uint32{
	unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_MOUNT_SETATTR,
}

// otherCalls are other calls that Docker refuses. Docker always refuses some of these calls. It
// refuses each of the others to a process that lacks a certain capability: SYS_PTRACE, SYS_ADMIN,
// SYS_NICE, SYS_PACCT, BPF, PERFMON or DAC_READ_SEARCH.
var otherCalls = []uint32{
	unix.SYS_PIDFD_GETFD, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KCMP, unix.SYS_PROCESS_MADVISE, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN,
	unix.SYS_FANOTIFY_INIT, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_QUOTACTL, unix.SYS_SYSLOG, unix.SYS_ACCT, unix.SYS_USERFAULTFD,
	unix.SYS_ADD_KEY, unix.SYS_KEYCTL, unix.SYS_REQUEST_KEY, unix.SYS_MBIND, unix.SYS_MOVE_PAGES, unix.SYS_SET_MEMPOLICY,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
}

// calls are system calls that the local cloud makes. Older kernels lack these calls, or seccomp
// profiles refuse them.
var calls = map[string]uint32{
	"clone3": unix.SYS_CLONE3, "close_range": unix.SYS_CLOSE_RANGE, "execveat": unix.SYS_EXECVEAT, "faccessat2": unix.SYS_FACCESSAT2,
	"fsconfig": unix.SYS_FSCONFIG, "fsmount": unix.SYS_FSMOUNT, "fsopen": unix.SYS_FSOPEN,
	"landlock_add_rule": unix.SYS_LANDLOCK_ADD_RULE, "landlock_create_ruleset": unix.SYS_LANDLOCK_CREATE_RULESET,
	"landlock_restrict_self": unix.SYS_LANDLOCK_RESTRICT_SELF, "memfd_create": unix.SYS_MEMFD_CREATE,
	"mount": unix.SYS_MOUNT, "mount_setattr": unix.SYS_MOUNT_SETATTR, "move_mount": unix.SYS_MOVE_MOUNT, "open_tree": unix.SYS_OPEN_TREE,
	"openat2": unix.SYS_OPENAT2, "pidfd_getfd": unix.SYS_PIDFD_GETFD, "pidfd_open": unix.SYS_PIDFD_OPEN,
	"pidfd_send_signal": unix.SYS_PIDFD_SEND_SIGNAL, "pivot_root": unix.SYS_PIVOT_ROOT,
	"process_vm_readv": unix.SYS_PROCESS_VM_READV, "seccomp": unix.SYS_SECCOMP, "setns": unix.SYS_SETNS,
	"statx": unix.SYS_STATX, "umount2": unix.SYS_UMOUNT2, "unshare": unix.SYS_UNSHARE,
}

// Calls returns the names of the calls that Refuse can refuse one by one.
func Calls() []string { return slices.Sorted(maps.Keys(calls)) }

// Refuse makes the kernel refuse system calls of this process and of all processes that it starts.
// Its argument is a list of these words, separated by spaces:
//
//   - namespaces, mounts and others: together, these three words refuse the same calls as Docker's
//     default profile;
//   - clocks: time namespaces are refused, as on a kernel without time namespaces;
//   - landlock: Landlock is refused, as on a kernel without Landlock;
//   - signals: newer versions of Landlock are refused, as on a kernel that has only an older version;
//   - a name from [Calls]: the call is refused, as on a kernel without the call. If "=EPERM" follows
//     the name, the call fails with EPERM, as if a seccomp profile refused it.
func Refuse(refuse string) error {
	const (
		number   = 0
		argument = 16 // offset of the low half of the first argument
		third    = argument + 2*8
		eperm    = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
		enosys   = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	)
	var program []unix.SockFilter
	step := func(code uint16, k uint32, yes, no uint8) {
		program = append(program, unix.SockFilter{Code: code, K: k, Jt: yes, Jf: no})
	}
	load := func(offset uint32) { step(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset, 0, 0) }
	unless := func(test uint16, k uint32, skip uint8) { step(unix.BPF_JMP|test|unix.BPF_K, k, 0, skip) }
	answer := func(k uint32) { step(unix.BPF_RET|unix.BPF_K, k, 0, 0) }

	words := strings.Fields(refuse)
	load(number)
	if slices.Contains(words, "namespaces") {
		for _, call := range []uint32{unix.SYS_CLONE, unix.SYS_UNSHARE} {
			unless(unix.BPF_JEQ, call, 4)
			load(argument)
			unless(unix.BPF_JSET, namespaces, 1)
			answer(eperm)
			answer(unix.SECCOMP_RET_ALLOW)
		}
		unless(unix.BPF_JEQ, unix.SYS_CLONE3, 1) // its flags are in memory, where a filter cannot see them
		answer(enosys)
	}
	if slices.Contains(words, "clocks") {
		unless(unix.BPF_JEQ, unix.SYS_UNSHARE, 4)
		load(argument)
		unless(unix.BPF_JEQ, unix.CLONE_NEWTIME, 1)
		answer(unix.SECCOMP_RET_ERRNO | uint32(unix.EINVAL))
		load(number)
	}
	for word, refused := range map[string][]uint32{"mounts": mountCalls, "others": otherCalls} {
		if !slices.Contains(words, word) {
			continue
		}
		for _, call := range refused {
			unless(unix.BPF_JEQ, call, 1)
			answer(eperm)
		}
	}
	for _, word := range words {
		name, denied := strings.CutSuffix(word, "=EPERM")
		call, one := calls[name]
		if !one {
			continue
		}
		unless(unix.BPF_JEQ, call, 1)
		if denied {
			answer(eperm)
		} else {
			answer(enosys)
		}
	}
	var flags uintptr = unix.SECCOMP_FILTER_FLAG_TSYNC
	switch {
	case slices.Contains(words, "landlock"):
		unless(unix.BPF_JEQ, unix.SYS_LANDLOCK_CREATE_RULESET, 1)
		answer(enosys)
	case slices.Contains(words, "signals"):
		flags |= unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH | unix.SECCOMP_FILTER_FLAG_NEW_LISTENER
		unless(unix.BPF_JEQ, unix.SYS_LANDLOCK_CREATE_RULESET, 3)
		load(third)
		unless(unix.BPF_JEQ, unix.LANDLOCK_CREATE_RULESET_VERSION, 1)
		answer(unix.SECCOMP_RET_USER_NOTIF)
	}
	answer(unix.SECCOMP_RET_ALLOW)

	runtime.LockOSThread() // the same thread must set both
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&filter)))
	if errno != 0 {
		return os.NewSyscallError("seccomp", errno)
	}
	if flags&unix.SECCOMP_FILTER_FLAG_NEW_LISTENER != 0 {
		go answerVersion(int(fd), 5)
	}
	return nil
}

// answerVersion answers queries of the Landlock version with the given version, like an older kernel.
// It does so until the program ends.
func answerVersion(listener int, version int64) {
	var question struct {
		id         uint64
		pid, flags uint32
		data       [64]byte
	}
	var answer struct {
		id           uint64
		value        int64
		errno, flags uint32
	}
	for {
		question.id, question.pid, question.flags, question.data = 0, 0, 0, [64]byte{} // the kernel requires it
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&question)))
		if errno != 0 {
			continue // the process that asked was interrupted, or has ended
		}
		answer.id, answer.value = question.id, version
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&answer))) // that process may have ended
	}
}
