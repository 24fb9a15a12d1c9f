//go:build linux && (amd64 || arm64)

package runtime

import (
	"encoding/binary"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data; arguments are 64 bits, of which the low half
// comes first on both architectures.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16
)

const cloneNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// applySeccomp puts the filter on this thread, to be inherited by all that it
// executes. Without shared, what reaches other processes of the same id is refused
// too: sockets and System V objects. It needs no_new_privs or CAP_SYS_ADMIN.
func applySeccomp(shared bool) error {
	program := seccompProgram(shared)
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return fmt.Errorf("apply the seccomp filter: %w", errno)
	}
	return nil
}

// seccompBytes is the filter as it lies in memory, for who puts it on itself.
func seccompBytes(shared bool) []byte {
	var data []byte
	for _, f := range seccompProgram(shared) {
		data = binary.NativeEndian.AppendUint16(data, f.Code)
		data = append(data, f.Jt, f.Jf)
		data = binary.NativeEndian.AppendUint32(data, f.K)
	}
	return data
}

// seccompProgram is an allow-list. What it knows and refuses answers EPERM; what
// is newer than it, or another architecture's, answers ENOSYS, so that programs
// fall back to what they did before it existed.
func seccompProgram(shared bool) []unix.SockFilter {
	var p []unix.SockFilter
	stmt := func(code uint16, k uint32) { p = append(p, unix.SockFilter{Code: code, K: k}) }
	jump := func(op uint16, k uint32, yes, no uint8) {
		p = append(p, unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, Jt: yes, Jf: no, K: k})
	}
	load := func(offset uint32) { stmt(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset) }
	ret := func(action uint32) { stmt(unix.BPF_RET|unix.BPF_K, action) }
	const (
		allow  = unix.SECCOMP_RET_ALLOW
		eperm  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
		enosys = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
		eafnos = unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)
	)

	load(offsetArch)
	jump(unix.BPF_JEQ, auditArch, 1, 0)
	ret(enosys)
	load(offsetNumber)

	// clone makes processes and threads, not namespaces. clone3 has its flags in
	// memory, where a filter cannot look.
	jump(unix.BPF_JEQ, unix.SYS_CLONE, 0, 4)
	load(offsetArgs)
	jump(unix.BPF_JSET, cloneNamespaces, 0, 1)
	ret(eperm)
	ret(allow)
	jump(unix.BPF_JEQ, unix.SYS_CLONE3, 0, 1)
	ret(enosys)
	// One process could take all asynchronous requests that the machine has.
	jump(unix.BPF_JEQ, unix.SYS_IO_SETUP, 0, 1)
	ret(enosys)

	if !shared {
		jump(unix.BPF_JEQ, unix.SYS_SOCKET, 0, 1)
		ret(eafnos)
	}
	// Families of sockets that end at the sandbox's own network namespace or are
	// of no use without capabilities; vsock, for one, reaches the hypervisor.
	families := []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6}
	jump(unix.BPF_JEQ, unix.SYS_SOCKET, 0, uint8(1+2*len(families)+5))
	load(offsetArgs)
	for _, family := range families {
		jump(unix.BPF_JEQ, family, 0, 1)
		ret(allow)
	}
	jump(unix.BPF_JEQ, unix.AF_NETLINK, 0, 3)
	load(offsetArgs + 16)
	jump(unix.BPF_JEQ, unix.NETLINK_ROUTE, 0, 1)
	ret(allow)
	ret(eafnos)

	// Typing into the terminal of another.
	jump(unix.BPF_JEQ, unix.SYS_IOCTL, 0, 5)
	load(offsetArgs + 8)
	jump(unix.BPF_JEQ, unix.TIOCSTI, 1, 0)
	jump(unix.BPF_JEQ, unix.TIOCLINUX, 0, 1)
	ret(eperm)
	ret(allow)

	allowed := slices.Concat(allowedSyscalls, archSyscalls)
	if !shared {
		allowed = slices.DeleteFunc(allowed, func(n uint32) bool { return slices.Contains(sharedSyscalls, n) })
	}
	for _, r := range coalesce(allowed) {
		jump(unix.BPF_JGE, r.first, 0, 2)
		jump(unix.BPF_JGT, r.last, 1, 0)
		ret(allow)
	}
	// Above the last number known here; on amd64 the x32 calls too.
	jump(unix.BPF_JGT, unix.SYS_LISTNS, 0, 1)
	ret(enosys)
	ret(eperm)
	return p
}

// sharedSyscalls make or open objects that an ipc namespace would keep apart.
var sharedSyscalls = []uint32{
	unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK, unix.SYS_MSGCTL, unix.SYS_MSGGET, unix.SYS_MSGRCV, unix.SYS_MSGSND, unix.SYS_SEMCTL,
	unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SHMGET,
}

type numberRange struct{ first, last uint32 }

// coalesce sorts numbers into ranges; the kernel caches the verdict of numbers
// that are always allowed, so their order does not matter.
func coalesce(numbers []uint32) []numberRange {
	slices.Sort(numbers)
	var ranges []numberRange
	for _, n := range numbers {
		if last := len(ranges) - 1; last >= 0 && n <= ranges[last].last+1 {
			ranges[last].last = n
			continue
		}
		ranges = append(ranges, numberRange{n, n})
	}
	return ranges
}
