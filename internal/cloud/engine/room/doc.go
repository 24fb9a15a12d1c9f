// Package room is the engine that isolates sandboxes with namespaces. It is the
// server's half: it starts the room, which supervises sandboxes, and boots, limits and
// serves them. What runs in the other processes is in package inside, and what they
// say to each other in package wire.
//
// Four processes take part, all of them the same binary, re-executed:
//
//   - the server is the program that called [Start];
//   - the keeper waits outside for the end of the server, whatever ends it, and
//     then removes the control groups and the instance directory;
//   - the room is the supervisor of all sandboxes: pid 1 of the namespaces that
//     contain everything else. It dies with the server, and the kernel then ends
//     everything in it;
//   - envd is pid 1 of one sandbox. It starts twice: first it builds the
//     sandbox (mounts, users, limits), then it executes itself again with the
//     restrictions in force, so that they apply to every one of its threads.
//
// A fifth process, the zygote, is Python with everything loaded that kernels
// commonly load. It runs in the room's user and pid namespaces, over the file
// system that every sandbox begins with, without a network and without
// capabilities, and runs no user code. A process that it forks joins the groups and
// the namespaces of a sandbox, becomes like every other process there, and only
// then talks to envd. Kernels of one zygote share hash seeds and addresses. If
// the machine has nothing to load, and until the zygote is warm, kernels start
// cold.
//
// A warm sandbox has its first kernel before it is anybody's: the kernel waits for its
// variables, directory and standard files, which envd sends it at its first use. If it is
// not used within a minute of the sandbox's use it is ended, as it is if the file system
// of the warm sandbox is replaced. While somebody waits for a sandbox, or if no code was
// run in the last one, none is forked until nobody asks for anything.
//
// On a machine that refuses namespaces envd starts in place, restricted by
// Landlock and seccomp: without network, without sockets, among the host's
// processes. Calls that change mode, owner or times of a file, or watch a directory, are
// made by envd for its programs (package holder), because Landlock does not check
// them. The room is then a process of the host that ends processes that
// outlive their envd. A guard, which started the room, ends processes that outlive
// the room. [engine.Report] says what is weaker. If processes could not be ended,
// Close returns the error [engine.ErrProcessesLeft].
//
// A sandbox has a network namespace with only a loopback device. Its first stage
// makes every address local to the sandbox, so that whatever programs send to any
// address arrives at two sockets in the namespace, one for TCP and one for DNS
// queries over UDP, and passes these sockets to the server. The outside consists
// only of what [engine.SandboxOptions].Egress allows. This is the only time that
// the server receives descriptors from a sandbox, these and its file system, and none of
// the sandbox's code has run by then: the process that later becomes envd still runs only the
// server's own program. After that nobody inside may change routes or rules, and a
// process that could would only cut the sandbox off. If the kernel lacks nftables
// or its tproxy, only envd's proxy leads out, and [engine.Report] says so.
// Which of the two applies is found out by making one connection at the start.
//
// Root of a sandbox with a range of ids owns, in the trees shown from the host,
// what the host's root owns. So the sandbox does not see files that others on the
// host may neither read nor execute, nor directories that others may not enter,
// whoever owns them: no key with mode 0600, no database of root:shadow with 0640,
// no helper with 4750. They are looked for once per start, before the first
// sandbox. Directories that have not changed since a survey of the last day are not
// searched again, so a file of which only the mode changed may be shown until a
// room has lived for some seconds and the next one starts, or until that day is
// over. If the directory of a requested tree is itself closed to others, the tree
// is shown whole. Where root and user are one id, the host's permissions also apply
// inside.
//
// Connections into a sandbox take one of two ways. Its own ports are envd's, which gets one
// end of a pair of sockets for each connection. To a port of a program the server connects
// itself, with a socket that the room makes in the network namespace of the sandbox: envd
// spends no descriptor on it, so no number of such connections keeps anybody from envd.
//
// A sandbox has its own device nodes if the server may make nodes, as root outside
// of containers may. Otherwise null, zero, full, random, urandom and tty are the
// host's: locks and watches on them are visible to the host and to other sandboxes.
//
// A sandbox runs on as many processors as its limit, which the server chooses, and
// /proc/cpuinfo and what /sys has about processors show only these. A program may
// choose others: the limit is enforced by the control group.
//
// A sandbox's /proc/meminfo is a file of its own: the room writes it, and keeps the
// only descriptor that can. The room has a lease of the file, so an open waits until
// the text is new, and while nobody opens it nothing is done. An open with O_NONBLOCK
// may have to be tried again, as for any file with a lease. No process of a sandbox, envd
// included, can have a lease: on a file of a mount it would hold up the host's programs.
//
// A sandbox is frozen by a control group of version 2, or by SIGSTOP where there is none,
// and never by the freezer of version 1: what that has frozen cannot be killed. Frozen
// processes keep their memory; a sandbox that was frozen is ended, and ends with its
// server, as any other. All connections into and out of it are cut first. Clocks go on:
// a sleep that is over meanwhile ends with the thaw.
//
// The files of a frozen sandbox can be saved, and another one can begin with them. The
// first stage sends the file system in which everything is that the sandbox writes to the
// server, before any code of the sandbox has run. To save, the server starts a process
// with the ids of the sandbox and with rights over these only, which writes one file (see
// package saved). The first stage of the next sandbox reads it before it mounts anything.
// Devices, sockets and /dev/shm are not saved, nor is what is hidden below a mount. What
// was changed in a tree belongs to the tree's path: if the machine does not show the tree
// at all, the changes are at that path without the rest. Without namespaces only the
// sandbox's own directory is saved, which has another path in the next sandbox.
//
// Saved files can become a layer: directories that any number of sandboxes share, each
// below what it writes itself (see package layer). Then the root of a sandbox is an
// overlay, too, and only what is above its layers is saved. On the disk, owners are as
// sandboxes number them. So what makes layers is a process with ids of its own, as a
// sandbox has, which the mount of the layer's directory maps, and each sandbox gets such a
// mount. Links to the files of several layers make one of them, without copies.
//
// The root of a sandbox of a container image is an overlay of its layers, with nothing of
// the host: no tree, no Python, no kernel of the zygote. Every name in an image is foreign.
// Where each sandbox has something of its own, in /dev, /proc, /sys, /etc/resolv.conf,
// /etc/hosts and /etc/hostname, in the files of accounts and in homes, what the image has
// is replaced, and no link of it is followed while the host can still be reached. /run is
// the image's: packages make directories there for their programs. The accounts root and
// user are added, above the image, if it does not have them. With a single id all files of
// an image belong to root, who is user, and its other users cannot be used. An image never
// falls to a weaker isolation: without namespaces it is refused.
//
// The program that this package re-executes may be linked to libraries, which an image
// does not have. Then the second stage is executed at the root of the host, with no more
// rights than it will have, and a mounter moves it into the image before it is told its role
// and any of the sandbox's code runs.
//
// While a sandbox is warm, a process in it can still replace its file system, the mounter:
// it builds another one on the same tmpfs and makes that the root of all processes. Or it
// mounts what makes programs trust the sandbox's authority. It has
// all capabilities in the sandbox, and has ended before the sandbox is anybody's. A
// sandbox with a single id has none, because what it could mount is only reachable from
// the host's root.
//
// The processes exchange JSON over SOCK_SEQPACKET Unix sockets, descriptor 3 of
// each child. The server treats envd as hijacked: once envd runs, the
// server never receives a descriptor from it, follows no path that it names, and
// ends a sandbox that breaks the protocol.
//
// The table of TestEscape lists what no code in a sandbox may do. Ending its own
// sandbox is not in the table: root inside can starve envd, which has the same
// id.
//
// The kernel counts inotify instances and watches, POSIX message queues and timers,
// queued signals, locked memory and processes by user. With namespaces one sandbox
// gets at most an eighth of what the server's user may have. All sandboxes of an
// ordinary user together get at most half; those of root are counted under ids of
// their own. All processes of all sandboxes are at most half of the machine's, half of
// what the control groups of the server allow, or [Options].Processes. Without namespaces
// and without a control group for processes, a sandbox with an id of its own may have an
// eighth, and one with the server's id is not limited. The server and the processes that
// supervise sandboxes have all their threads before the first sandbox starts, so that they
// go on when no process can be started. The processes of one sandbox together
// may open half of the machine's files, but each of them may open 256 in any case.
// Where there is only one id, sandboxes share what the kernel counts by the host's
// id whatever the namespace: epoll watches, memory of pipes, and descriptors in
// transit through sockets. A sandbox without namespaces and without an id of its
// own shares all of this with the server's user and with the other sandboxes: it
// may take all of that user's inotify instances.
//
// Topics that both halves use have a package each: spawn and hello re-execute this binary and
// recognise it; cgroup and counter limit sandboxes; seccomp, landlock and capability restrict
// them; saved and layer write their files; place, holder and halt do without namespaces what
// those do; instance and orphan end what a server left. For tests, escapetest lists
// the escapes that a sandbox must prevent, chaintest has processes that are hard to end, and
// imagetest makes layers by hand.
package room
