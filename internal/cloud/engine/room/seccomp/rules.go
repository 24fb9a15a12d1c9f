//go:build linux

package seccomp

import "golang.org/x/sys/unix"

// For programs, ENOSYS and EOPNOTSUPP mean an older kernel or a simpler file system, and they
// continue without the call.

// Rules of calls that are refused.
var (
	// These calls make, enter, change or list namespaces and mounts, which isolate the sandbox.
	nesting = refuse(unix.EPERM)
	// These calls are new or seldom used parts of kernels, and many of them have been used for
	// attacks on kernels. Few programs need them.
	attacked = refuse(unix.EPERM)
	// Only the machine's administrator needs these calls. Some of the calls query the state of the
	// machine.
	administration = refuse(unix.EPERM)
	// Handles bypass the checks of paths, and descriptors of other processes bypass all checks.
	bypassing = refuse(unix.EPERM)
	// These calls choose the nodes of the machine's memory. A process could fill a node that others
	// need. Kernels have also been attacked through these calls. A kernel without nodes returns
	// ENOSYS, so the filter does too. After EPERM, libnuma would continue and print an error for each
	// call.
	placement = refuse(unix.ENOSYS)
	// The kernel itself makes these calls, for a probe of the machine's administrator. The kernel does
	// not run the filter for its own calls.
	ofTheKernel = refuse(unix.EPERM)
	// Kernels no longer have these calls, or never had them.
	outdated = refuse(unix.EPERM)
	// No program needs these calls yet.
	tooNew = refuse(unix.ENOSYS)
	// clone3 takes its flags from memory, and a filter cannot read memory.
	inMemory = refuse(unix.ENOSYS)
	// With these calls, one process could use up all asynchronous requests of the machine.
	noQueue = refuse(unix.ENOSYS)
	// These calls need an AIO context. Only io_setup makes such a context, and io_setup is refused.
	afterSetup = refuse(unix.EPERM)
)

const cloneNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// From linux/personality.h.
const (
	perLinux         = 0
	perLinux32       = 8          // uname reports a 32-bit machine
	uname26          = 0x20000    // uname reports version 2.6
	addrNoRandomize  = 0x40000    // the next program is loaded to the same addresses every time
	personalityQuery = 0xffffffff // queries the personality, and changes nothing
)

// Rules of calls whose arguments matter. ptrace is not among them. Debuggers need ptrace, and it
// does not reach beyond the sandbox's pid namespace. It does not reach envd either, because envd is
// not dumpable.
var (
	// clone may make processes and threads, but not namespaces.
	newProcess = allowIf(unix.EPERM, all{masked(0, cloneNamespaces, 0)})
	// These socket families are confined to the sandbox's own network namespace or useless without
	// capabilities. Other families are refused. For example, vsock reaches the hypervisor.
	ordinarySocket = allowIf(unix.EAFNOSUPPORT,
		all{is(0, unix.AF_UNIX)}, all{is(0, unix.AF_INET)}, all{is(0, unix.AF_INET6)},
		all{is(0, unix.AF_NETLINK), is(2, unix.NETLINK_ROUTE)})
	// Only Unix sockets support socketpair. For any other family the kernel would first check the
	// family, and then report that it supports no pairs.
	ordinaryPair = allowIf(unix.EAFNOSUPPORT, all{is(0, unix.AF_UNIX)})
	// Other personalities imitate other systems, and are hardly tested. Addresses that are not
	// randomised harm only the process itself. gdb requests such addresses. Programs with a thread or
	// memory sanitizer end if they need such addresses and do not get them.
	ordinaryPersonality = allowIf(unix.EPERM,
		all{is(0, perLinux)}, all{is(0, perLinux32)}, all{is(0, perLinux|uname26)}, all{is(0, perLinux32|uname26)},
		all{is(0, perLinux|addrNoRandomize)}, all{is(0, personalityQuery)})
	// A lease or a delegation makes the kernel block a process that opens the file. The process is
	// blocked for 45 seconds, or until the owner of the lease or delegation gives it up. With a lease
	// or a delegation on a file of a mount, a sandbox would block the host's programs.
	noHolding = allowIf(unix.EPERM, all{isNot(1, unix.F_SETLEASE), isNot(1, unix.F_SETDELEG)})
	// A character device with the number 0 is a whiteout: it hides a name in the layers of an overlay.
	// The host may use the directory of a mount as such a layer. A process needs no privilege to make
	// a whiteout, or to leave a whiteout in place of a renamed file.
	noWhiteoutAt1    = withoutWhiteout(1)
	noWhiteoutAt2    = withoutWhiteout(2)
	noWhiteoutBehind = allowIf(unix.EPERM, all{masked(4, unix.RENAME_WHITEOUT, 0)})
	// These requests would type into another process's terminal.
	noTyping = allowIf(unix.EPERM, all{isNot(1, unix.TIOCSTI), isNot(1, unix.TIOCLINUX)})
)

// ioprioProcess is IOPRIO_WHO_PROCESS, which package unix lacks.
const ioprioProcess = 1

// socketType masks the type of a socket in an argument that also contains flags.
const socketType = 0xf

// setIDs are the mode bits of a program that make it run with the rights of its owner or group.
const setIDs = unix.S_ISUID | unix.S_ISGID

// makesFile are the flags with which open makes a file and uses its mode. O_TMPFILE also contains
// O_DIRECTORY, which does not matter here.
const makesFile = unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY

// withoutSetID allows a call if one of the conditions in any holds. Each condition proves that the
// call sets none of the setIDs.
func withoutSetID(any ...condition) rule {
	r := rule{refusal: unix.EPERM}
	for _, c := range any {
		r.allowed = append(r.allowed, all{c})
	}
	return r
}

// withoutWhiteout allows a call that makes a node, unless the node is a whiteout. mode is the index
// of the argument with the mode. The next argument is the node's device number.
func withoutWhiteout(mode uint32) rule {
	return allowIf(unix.EPERM,
		all{{half: offsetArgs + 8*mode, mask: unix.S_IFMT, value: unix.S_IFCHR, not: true}}, all{isNot(mode+1, 0)})
}

// getFlags is FS_IOC_GETFLAGS, which package unix lacks for some architectures.
const getFlags = 0x80086601

// Rules of calls in place, that is, in a sandbox without namespaces, which often has no id of its
// own either.
var (
	// Before the kernel changes the limits and priorities of another process, or the attributes of a
	// file, it checks only the id. So a process may change only its own limits and priorities, and
	// must pass 0 as the number of the process. All other numbers are refused, because a filter cannot
	// determine which processes and threads belong to the sandbox.
	ofItself     = allowIf(unix.EPERM, all{is(0, 0)})
	ownLimits    = allowIf(unix.EPERM, all{is(0, 0)}, isNull(2))
	ownPriority  = allowIf(unix.EPERM, all{is(0, unix.PRIO_PROCESS), is(1, 0)})
	ownDiskShare = allowIf(unix.EPERM, all{is(0, ioprioProcess), is(1, 0)})
	// A single socket is refused, because no network namespace confines it. A pair of stream sockets
	// is allowed, because it is connected and stays connected. A pair of datagram sockets is refused,
	// because either socket could send to any other socket by its path.
	noSocket      = refuse(unix.EAFNOSUPPORT)
	connectedPair = allowIf(unix.ESOCKTNOSUPPORT,
		all{is(0, unix.AF_UNIX), masked(1, socketType, unix.SOCK_STREAM)},
		all{is(0, unix.AF_UNIX), masked(1, socketType, unix.SOCK_SEQPACKET)})
	// A program with a set-user-ID or set-group-ID bit runs with the rights of its owner or group.
	// Other accounts of the machine could run such a program outside of every sandbox. So no call may
	// set these bits, on any file. Calls that open a file set a mode only if they make the file.
	modeAt1      = withoutSetID(masked(1, setIDs, 0))
	modeAt2      = withoutSetID(masked(2, setIDs, 0))
	modeOfOpen   = withoutSetID(masked(1, makesFile, 0), masked(2, setIDs, 0))
	modeOfOpenAt = withoutSetID(masked(2, makesFile, 0), masked(3, setIDs, 0))
	// These commands need only a file descriptor, no matter how it was opened. They watch how other
	// processes use a file or directory, block other processes, or set how a file is written.
	noWatching = allowIf(unix.EPERM, all{isNot(1, unix.F_NOTIFY), isNot(1, unix.F_SETLEASE), isNot(1, unix.F_SETDELEG), isNot(1, unix.F_SET_RW_HINT)})
	// Requests that act on attributes of files, and operations of some file systems, also need only a
	// file descriptor. So these are refused. Three kinds of requests are allowed: the operations of
	// terminals, pipes and descriptors, which all have the same type; FICLONE, which copies a file;
	// and the request that reads attributes.
	ownIoctl = allowIf(unix.EPERM,
		all{masked(1, 0xff00, 'T'<<8), isNot(1, unix.TIOCSTI), isNot(1, unix.TIOCLINUX)},
		all{is(1, unix.FICLONE)}, all{is(1, getFlags)})
	// Landlock does not check these calls. They could change access control lists of the server's
	// files.
	noAttributes = refuse(unix.EOPNOTSUPP)
	// These calls make or open objects that an ipc namespace would separate.
	noObjects = refuse(unix.EPERM)
)

// inPlace returns the calls that have different rules if a sandbox has no namespaces.
//
// Before the kernel changes the mode, owner and times of a file, it checks only the id. Before it
// watches a file, it requires only the right to read. So the filter asks the holder about these
// calls, and the holder makes the changes. For this purpose the holder may make a few calls that
// are refused to all other processes.
func inPlace(key Key) map[string]rule {
	return map[string]rule{
		"chmod":     modeAt1.asking(key),
		"fchmod":    modeAt1.asking(key),
		"fchmodat":  modeAt2.asking(key),
		"fchmodat2": modeAt2.asking(key),
		"creat":     modeAt1,
		"mkdir":     modeAt1,
		"mkdirat":   modeAt2,
		"mknod":     modeAt1,
		"mknodat":   modeAt2,
		"open":      modeOfOpen,
		"openat":    modeOfOpenAt.forOften(),

		"chown":             allow.asking(key),
		"fchown":            allow.asking(key),
		"fchownat":          allow.asking(key),
		"futimesat":         allow.asking(key),
		"inotify_add_watch": allow.asking(key),
		"lchown":            allow.asking(key),
		"utime":             allow.asking(key),
		"utimensat":         allow.asking(key),
		"utimes":            allow.asking(key),

		"openat2":     allowIf(unix.ENOSYS, has(key)), // its mode is in memory, which a filter cannot read
		"pidfd_getfd": allowIf(unix.EPERM, has(key)),
		"fcntl":       noWatching,
		"ioctl":       {allowed: append([]all{has(key)}, ownIoctl.allowed...), refusal: ownIoctl.refusal},

		"ioprio_set":         ownDiskShare,
		"prlimit64":          ownLimits,
		"sched_setaffinity":  ofItself,
		"sched_setattr":      ofItself,
		"sched_setparam":     ofItself,
		"sched_setscheduler": ofItself,
		"setpriority":        ownPriority,

		"socket":     noSocket,
		"socketpair": connectedPair,

		"file_setattr":  noAttributes,
		"fremovexattr":  noAttributes,
		"fsetxattr":     noAttributes,
		"lremovexattr":  noAttributes,
		"lsetxattr":     noAttributes,
		"removexattr":   noAttributes,
		"removexattrat": noAttributes,
		"setxattr":      noAttributes,
		"setxattrat":    noAttributes,

		"mq_open":    noObjects,
		"mq_unlink":  noObjects,
		"msgctl":     noObjects,
		"msgget":     noObjects,
		"msgrcv":     noObjects,
		"msgsnd":     noObjects,
		"semctl":     noObjects,
		"semget":     noObjects,
		"semop":      noObjects,
		"semtimedop": noObjects,
		"shmat":      noObjects,
		"shmctl":     noObjects,
		"shmget":     noObjects,
	}
}

// callsInPlace returns the calls with the rules for a sandbox without namespaces. key is the key of
// its holder.
func callsInPlace(key Key) []call {
	rules := inPlace(key)
	changed := make([]call, len(calls))
	for i, c := range calls {
		if r, ok := rules[c.name]; ok {
			c.rule = r
		}
		changed[i] = c
	}
	return changed
}
