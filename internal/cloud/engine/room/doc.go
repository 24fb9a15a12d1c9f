// Package room isolates sandboxes: the room they live in, the start of the
// agent, namespaces, users and limits.
//
// Four processes take part, all of them the same binary, re-executed:
//
//   - the server is the program that called [Start];
//   - the keeper waits outside for the end of the server, however it ends, and
//     then removes the control groups and the instance directory;
//   - the room is pid 1 of the namespaces that hold everything else; it dies
//     with the server, and the kernel ends all that is in it with it;
//   - the agent is pid 1 of one sandbox. It starts twice: first it builds the
//     sandbox (mounts, users, limits), then it executes itself again with the
//     restrictions in force, so that every thread of it has them.
//
// A fifth one, the zygote, is Python with everything loaded that kernels commonly
// load. It is in the room's namespaces of users and processes, over the file system
// that every sandbox begins with, without a network and without capabilities, and
// runs no code of a user. What it forks joins the groups and the namespaces of a
// sandbox, becomes what every process there is, and only then speaks to the
// agent. Kernels of one zygote share hash seeds and addresses. Without it, where
// the machine has nothing to load or until it is warm, kernels start from their
// beginning.
//
// Where the machine refuses namespaces the agent starts in place, restricted by
// Landlock and seccomp: without network, without sockets, among the host's
// processes. The room is then a process of the host that ends what outlived its
// agent; a guard, which started the room, ends what outlived that; and [Report] says
// what is weaker. What could not be ended is an error of Close, [ErrProcessesLeft].
//
// A sandbox has a network namespace with a loopback alone. Its first stage makes
// every address local to it, so that what programs send anywhere arrives at two
// sockets of the namespace, TCP and UDP for questions about names, and passes these
// to the server: what [SandboxOptions].Egress says is all there is outside. This is
// the one time that the server takes descriptors from a sandbox, and nothing of the
// sandbox has run by then; the same program that becomes its agent later is still
// the server's own. After that nobody inside may change routes or rules, and whoever
// could would only cut the sandbox off. Where the kernel lacks nftables or its tproxy
// there is the agent's proxy, and [Report] says so; which it is was found out by
// making one connection at the start.
//
// Root of a sandbox with a range of ids owns in the host's trees what the host's root
// owns. So whatever others on the host may neither read nor execute, and every
// directory that others may not enter, whoever it belongs to, is not there inside: no
// key with mode 0600, no database of root:shadow with 0640, no helper with 4750. It is
// looked for once a start, before the first sandbox. Directories that have not changed
// since a survey of the last day are not looked into again, so a file whose mode
// alone was changed may be shown until a room has lived for some seconds and
// the next one starts, or that day is over. A tree asked for whose own
// directory is closed to others is shown whole. Where root and user are one id, the
// host's permissions hold inside, too.
//
// A sandbox has device nodes of its own where the server may make nodes, as root may
// outside of containers. Elsewhere null, zero, full, random, urandom and tty are the
// host's: locks and watches on them are seen by the host and by other sandboxes.
//
// They speak JSON over SOCK_SEQPACKET Unix sockets, descriptor 3 of each child.
// The server treats the agent as hijacked: it never receives a descriptor from
// it once it runs, follows no path it names, and ends a sandbox that breaks the
// protocol.
//
// What no code in a sandbox may do is the table of TestEscape. To end its own
// sandbox is not in it: root inside can starve the agent, whose id it has.
//
// The kernel counts inotify instances and watches, POSIX message queues and timers,
// queued signals, locked memory and processes by user. With namespaces a sandbox
// gets at most an eighth of what the server's user may have, all sandboxes of an
// ordinary user together at most a half, and those of root count for ids of their
// own. All processes of all sandboxes are at most half of the machine's, or
// [Options].Processes; where root has no control group for processes, only each
// sandbox is limited, and each user in it. The processes of one sandbox
// together may open half of the machine's files, but each of them 256 in any case.
// What the kernel counts by the host's id, whatever the namespace, is shared where
// there is one id: epoll watches, memory of pipes, descriptors on their way
// through sockets. Without namespaces and an id of its own a sandbox shares all
// of this with the server's user, and with the other sandboxes: it may take all of
// that user's inotify instances.
package room
