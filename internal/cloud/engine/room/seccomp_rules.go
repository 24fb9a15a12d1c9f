//go:build linux && (amd64 || arm64)

package room

import (
	"slices"

	"golang.org/x/sys/unix"
)

// What a call that is refused answers. Programs take ENOSYS and EOPNOTSUPP for an
// older kernel or a simpler file system, and do without.
const (
	answerEPERM           = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	answerENOSYS          = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	answerEOPNOTSUPP      = unix.SECCOMP_RET_ERRNO | uint32(unix.EOPNOTSUPP)
	answerEAFNOSUPPORT    = unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)
	answerESOCKTNOSUPPORT = unix.SECCOMP_RET_ERRNO | uint32(unix.ESOCKTNOSUPPORT)
)

// rule is about a call whose arguments matter. It is allowed when all conditions
// of one of the alternatives hold, and otherwise refused.
type rule struct {
	call    uint32
	allowed [][]condition
	refusal uint32
}

// condition is about one half of an argument. Of an int the kernel looks at the
// low half only, so the other one does not matter.
type condition struct {
	half  uint32 // its offset
	mask  uint32 // the bits that matter; 0 is all of them
	value uint32
	not   bool // it must be anything but value
}

func is(argument, value uint32) condition {
	return condition{half: offsetArgs + 8*argument, value: value}
}

func isNot(argument, value uint32) condition {
	return condition{half: offsetArgs + 8*argument, value: value, not: true}
}

func masked(argument, mask, value uint32) condition {
	return condition{half: offsetArgs + 8*argument, mask: mask, value: value}
}

// isNull is about a pointer, both halves of which count.
func isNull(argument uint32) []condition {
	return []condition{is(argument, 0), {half: offsetArgs + 8*argument + 4}}
}

const cloneNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// socketType is where the type of a socket is in an argument that holds flags too.
const socketType = 0xf

// everywhereRules hold on every level.
var everywhereRules = []rule{
	// clone makes processes and threads, not namespaces. clone3 has its flags in
	// memory, where a filter cannot look.
	{unix.SYS_CLONE, [][]condition{{masked(0, cloneNamespaces, 0)}}, answerEPERM},
	{unix.SYS_CLONE3, nil, answerENOSYS},
	// One process could take all asynchronous requests that the machine has.
	{unix.SYS_IO_SETUP, nil, answerENOSYS},
	// Families of sockets that end at the sandbox's own network namespace or are
	// of no use without capabilities; vsock, for one, reaches the hypervisor.
	{unix.SYS_SOCKET, [][]condition{
		{is(0, unix.AF_UNIX)}, {is(0, unix.AF_INET)}, {is(0, unix.AF_INET6)},
		{is(0, unix.AF_NETLINK), is(2, unix.NETLINK_ROUTE)},
	}, answerEAFNOSUPPORT},
	// The kernel asks the family before it says that this one makes no pairs.
	{unix.SYS_SOCKETPAIR, [][]condition{{is(0, unix.AF_UNIX)}}, answerEAFNOSUPPORT},
	// Typing into the terminal of another.
	{unix.SYS_IOCTL, [][]condition{{isNot(1, unix.TIOCSTI), isNot(1, unix.TIOCLINUX)}}, answerEPERM},
}

// ioprioProcess is IOPRIO_WHO_PROCESS, which package unix does not have.
const ioprioProcess = 1

// inPlaceRules come first where a sandbox has no namespaces of its own, and often
// no id of its own. The kernel asks nothing but the id before it changes limits and
// priorities of another process, or attributes of a file, so a process may change
// its own only, named as 0. Its number and that of a thread are refused: a filter
// cannot tell whose they are.
var inPlaceRules = slices.Concat([]rule{
	{unix.SYS_PRLIMIT64, [][]condition{{is(0, 0)}, isNull(2)}, answerEPERM},
	{unix.SYS_SETPRIORITY, [][]condition{{is(0, unix.PRIO_PROCESS), is(1, 0)}}, answerEPERM},
	{unix.SYS_IOPRIO_SET, [][]condition{{is(0, ioprioProcess), is(1, 0)}}, answerEPERM},
	{unix.SYS_SCHED_SETAFFINITY, ofItself, answerEPERM},
	{unix.SYS_SCHED_SETATTR, ofItself, answerEPERM},
	{unix.SYS_SCHED_SETPARAM, ofItself, answerEPERM},
	{unix.SYS_SCHED_SETSCHEDULER, ofItself, answerEPERM},

	// No sockets, as no network namespace ends them. A pair is connected and stays
	// so; a pair of datagram sockets can send to any other by its path.
	{unix.SYS_SOCKET, nil, answerEAFNOSUPPORT},
	{unix.SYS_SOCKETPAIR, [][]condition{
		{is(0, unix.AF_UNIX), masked(1, socketType, unix.SOCK_STREAM)},
		{is(0, unix.AF_UNIX), masked(1, socketType, unix.SOCK_SEQPACKET)},
	}, answerESOCKTNOSUPPORT},
},
	// Landlock does not look at these calls, by which access control lists of the
	// server's files could be changed.
	never(answerEOPNOTSUPP, unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_SETXATTRAT,
		unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR, unix.SYS_REMOVEXATTRAT, unix.SYS_FILE_SETATTR),
	// They make or open objects that an ipc namespace would keep apart.
	never(answerEPERM, unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK, unix.SYS_MSGCTL, unix.SYS_MSGGET, unix.SYS_MSGRCV, unix.SYS_MSGSND,
		unix.SYS_SEMCTL, unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SHMGET),
)

// ofItself allows a call about the process that makes it.
var ofItself = [][]condition{{is(0, 0)}}

// never refuses calls whatever their arguments are.
func never(refusal uint32, calls ...uint32) []rule {
	rules := make([]rule, len(calls))
	for i, call := range calls {
		rules[i] = rule{call: call, refusal: refusal}
	}
	return rules
}
