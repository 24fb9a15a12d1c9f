//go:build linux && (amd64 || arm64)

package seccomp

import (
	"slices"

	"golang.org/x/sys/unix"
)

// Errors that refused calls return. Programs take ENOSYS and EOPNOTSUPP for an
// older kernel or a simpler file system, and do without the call.
const (
	answerEPERM           = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	answerENOSYS          = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	answerEOPNOTSUPP      = unix.SECCOMP_RET_ERRNO | uint32(unix.EOPNOTSUPP)
	answerEAFNOSUPPORT    = unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)
	answerESOCKTNOSUPPORT = unix.SECCOMP_RET_ERRNO | uint32(unix.ESOCKTNOSUPPORT)
)

// rule is about a call whose arguments matter. The call is allowed if all
// conditions of one of the alternatives hold, and otherwise refused.
type rule struct {
	call    uint32
	allowed [][]condition
	refusal uint32
}

// condition is about one half of an argument. For an int the kernel uses only the
// low half, so the other one does not matter.
type condition struct {
	half  uint32 // its offset
	mask  uint32 // the bits that matter; 0 means all of them
	value uint32
	not   bool // it must be anything except value
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

// isNull is about a pointer, of which both halves count.
func isNull(argument uint32) []condition {
	return []condition{is(argument, 0), {half: offsetArgs + 8*argument + 4}}
}

const cloneNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// socketType masks the type of a socket in an argument that also contains flags.
const socketType = 0xf

// everywhereRules apply at every isolation level.
var everywhereRules = []rule{
	// clone may make processes and threads, but not namespaces. clone3 has its
	// flags in memory, which a filter cannot read.
	{unix.SYS_CLONE, [][]condition{{masked(0, cloneNamespaces, 0)}}, answerEPERM},
	{unix.SYS_CLONE3, nil, answerENOSYS},
	// One process could use up all asynchronous requests of the machine.
	{unix.SYS_IO_SETUP, nil, answerENOSYS},
	// Allowed are the socket families that are confined to the sandbox's own
	// network namespace or useless without capabilities; vsock, for one, reaches
	// the hypervisor and is refused.
	{unix.SYS_SOCKET, [][]condition{
		{is(0, unix.AF_UNIX)}, {is(0, unix.AF_INET)}, {is(0, unix.AF_INET6)},
		{is(0, unix.AF_NETLINK), is(2, unix.NETLINK_ROUTE)},
	}, answerEAFNOSUPPORT},
	// The kernel asks the family before it reports that this family makes no pairs.
	{unix.SYS_SOCKETPAIR, [][]condition{{is(0, unix.AF_UNIX)}}, answerEAFNOSUPPORT},
	// These would type into another process's terminal.
	{unix.SYS_IOCTL, [][]condition{{isNot(1, unix.TIOCSTI), isNot(1, unix.TIOCLINUX)}}, answerEPERM},
}

// ioprioProcess is IOPRIO_WHO_PROCESS, which package unix does not have.
const ioprioProcess = 1

// inPlaceRules come first if a sandbox has no namespaces of its own, and often no
// id of its own. Before it changes limits and priorities of another process, or
// attributes of a file, the kernel checks nothing but the id. So a process may
// change only its own, and only under the number 0: other numbers of processes and
// threads are refused, because a filter cannot tell whose they are.
var inPlaceRules = slices.Concat([]rule{
	{unix.SYS_PRLIMIT64, [][]condition{{is(0, 0)}, isNull(2)}, answerEPERM},
	{unix.SYS_SETPRIORITY, [][]condition{{is(0, unix.PRIO_PROCESS), is(1, 0)}}, answerEPERM},
	{unix.SYS_IOPRIO_SET, [][]condition{{is(0, ioprioProcess), is(1, 0)}}, answerEPERM},
	{unix.SYS_SCHED_SETAFFINITY, ofItself, answerEPERM},
	{unix.SYS_SCHED_SETATTR, ofItself, answerEPERM},
	{unix.SYS_SCHED_SETPARAM, ofItself, answerEPERM},
	{unix.SYS_SCHED_SETSCHEDULER, ofItself, answerEPERM},

	// No sockets, because no network namespace confines them. A stream pair is
	// connected and stays so; a pair of datagram sockets could send to any other
	// socket by its path.
	{unix.SYS_SOCKET, nil, answerEAFNOSUPPORT},
	{unix.SYS_SOCKETPAIR, [][]condition{
		{is(0, unix.AF_UNIX), masked(1, socketType, unix.SOCK_STREAM)},
		{is(0, unix.AF_UNIX), masked(1, socketType, unix.SOCK_SEQPACKET)},
	}, answerESOCKTNOSUPPORT},
},
	// Landlock does not check these calls, with which access control lists of the
	// server's files could be changed.
	never(answerEOPNOTSUPP, unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_SETXATTRAT,
		unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR, unix.SYS_REMOVEXATTRAT, unix.SYS_FILE_SETATTR),
	// These make or open objects that an ipc namespace would keep apart.
	never(answerEPERM, unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK, unix.SYS_MSGCTL, unix.SYS_MSGGET, unix.SYS_MSGRCV, unix.SYS_MSGSND,
		unix.SYS_SEMCTL, unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SHMGET),
)

// ofItself allows a call if it is about the calling process.
var ofItself = [][]condition{{is(0, 0)}}

// never refuses calls whatever their arguments are.
func never(refusal uint32, calls ...uint32) []rule {
	rules := make([]rule, len(calls))
	for i, call := range calls {
		rules[i] = rule{call: call, refusal: refusal}
	}
	return rules
}
