// Package room is the engine that isolates sandboxes with namespaces. It is the server's
// half: it starts the room, which supervises sandboxes, and boots, limits and serves them.
// The code of the other processes is in package inside, and their messages are in package
// wire.
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
// A fifth process, the zygote, is a Python that has loaded the modules that kernels commonly
// load. It runs in the room's user and pid namespaces, over the file system with which every
// sandbox begins, without a network and without capabilities, and runs no user code. A
// process that it forks joins the groups and the namespaces of a sandbox, becomes like every
// other process there, and only then talks to envd. Kernels of one zygote share hash seeds
// and addresses. If the machine has nothing to load, and until the zygote is warm, kernels
// start cold.
//
// A warm sandbox has its first kernel before it has an owner: the kernel waits for its
// variables, directory and standard files, which envd sends it at its first use. The kernel
// is ended if it is not used within a minute of the sandbox's use, or if the file system of
// the warm sandbox is replaced. While a caller waits for a sandbox, or if no code was run in
// the last one, no kernel is forked until there are no requests.
//
// On a machine that refuses namespaces envd starts in place, restricted by Landlock and
// seccomp: without network, without sockets, among the host's processes. Landlock does not
// check calls that change mode, owner or times of a file, or that watch a directory, so envd
// makes these calls for its programs (package holder). The room is then a process of the host
// that ends processes that outlive their envd. A guard, which started the room, ends
// processes that outlive the room. [engine.Report] lists the weaker guarantees. If processes
// could not be ended, Close returns the error [engine.ErrProcessesLeft].
//
// A sandbox has a network namespace with only a loopback device. Its first stage makes every
// address local to the sandbox, so that its programs' traffic to any address arrives at two
// sockets in the namespace, one for TCP and one for DNS queries over UDP. The first stage passes these
// sockets to the server. Outside, only the hosts that [engine.SandboxOptions].Egress allows
// can be reached. This is the only time that the server receives descriptors from a sandbox:
// these sockets and its file system. None of the sandbox's code has run by then: the process
// that later becomes envd still runs only the server's own program. After that nobody inside
// may change routes or rules, and a process that could would only cut the sandbox off. If the
// kernel lacks nftables or its tproxy, only envd's proxy leads out, and [engine.Report] says
// so. The room makes one connection at its start to find out which of the two applies.
//
// Root of a sandbox with a range of ids owns the files of the host's root in the trees shown from the host.
// Therefore the sandbox does not see files that others on the host may neither read nor execute, nor directories
// that others may not enter, regardless of their owner: no key with mode 0600, no database of root:shadow with
// 0640, no helper with 4750. The server searches for them once per start, before the first sandbox. Directories
// that have not changed since a survey of the last day are not searched again. So a file whose mode alone
// changed may still be shown: until a room has run for some seconds and the next one starts, or until the survey
// is a day old. If the directory of a requested tree is itself closed to others, the tree is shown whole. If
// root and user are one id, the host's permissions also apply inside.
//
// Connections into a sandbox take one of two ways. Envd serves the sandbox's own ports, and
// gets one end of a pair of sockets for each connection. To a port of a program the server
// connects itself, with a socket that the room makes in the network namespace of the sandbox:
// envd spends no descriptor on it, so no number of such connections keeps clients from envd.
//
// A sandbox has its own device nodes if the server may make nodes, as root outside
// of containers may. Otherwise null, zero, full, random, urandom and tty are the
// host's: locks and watches on them are visible to the host and to other sandboxes.
//
// A sandbox runs on as many processors as its limit, which the server chooses. /proc/cpuinfo
// and the files about processors in /sys show only these. A program may choose others: the
// limit is enforced by the control group.
//
// A sandbox's /proc/meminfo is a file of its own: the room writes it, and keeps the only
// descriptor for writing. The room has a lease of the file, so an open waits until the text
// is new, and no work is done while nobody opens it. An open with O_NONBLOCK may have to be
// tried again, as for any file with a lease. No process of a sandbox, envd included, can have
// a lease: on a file of a mount it would block the host's programs.
//
// A sandbox is frozen by a control group of version 2, or by SIGSTOP on machines without one.
// It is never frozen by version 1, because processes frozen by that cannot be killed. Frozen
// processes keep their memory. A frozen sandbox is closed, and ends with its server, like any
// other. All connections into and out of it are cut first. Clocks go on: a sleep that is over
// in the meantime ends with the thaw.
//
// The files of a frozen sandbox can be saved, and another one can begin with them. The first
// stage sends the file system that holds all files written in the sandbox to the server,
// before any code of the sandbox has run. To save, the server starts a process with the ids
// of the sandbox and with rights over these only, which writes one file (see package saved).
// The first stage of the next sandbox reads that file before it mounts anything. Devices,
// sockets, /dev/shm and files hidden below a mount are not saved. Changes in a tree belong to
// the tree's path: on a machine that does not show the tree, that path has the changes alone.
// Without namespaces only the sandbox's own directory is saved, which has another path in the
// next sandbox.
//
// Saved files can become a layer: directories that any number of sandboxes share, each below
// the files that it writes itself (see package layer). The root of such a sandbox is an
// overlay, too, and only the files above its layers are saved. On the disk, owners have the
// numbers that they have in sandboxes. Therefore the process that makes layers has ids of its
// own, like a sandbox, and a mount of the layer's directory maps them. Each sandbox gets such
// a mount. Several layers are merged into one by links to their files, without copies.
//
// The root of a sandbox of a container image is an overlay of its layers, without anything of
// the host: no tree, no Python, no kernel of the zygote. Every name in an image is foreign.
// In /dev, /proc, /sys, /etc/resolv.conf, /etc/hosts and /etc/hostname, in the files of
// accounts and in homes, each sandbox has its own files: they replace those of the image, and
// no link of the image is followed while the host can still be reached. /run is the image's:
// packages make directories there for their programs. The accounts root and user are added,
// above the image, if it does not have them. With a single id all files of an image belong to
// root, who is user, and its other users cannot be used. An image never falls back to a
// weaker isolation: without namespaces it is refused.
//
// The program that this package re-executes may be linked to libraries, which an image does
// not have. Then the second stage is executed at the root of the host, with no more rights
// than it will have in the end. A mounter moves it into the image before it is told its role
// and before any of the sandbox's code runs.
//
// While a sandbox is warm, a process in it, the mounter, can still replace its file system:
// it builds another one on the same tmpfs and makes that the root of all processes. Or it
// mounts the files that make programs trust the sandbox's authority. The mounter has all
// capabilities in the sandbox, and ends before the sandbox has an owner. A sandbox with a
// single id has no mounter, because the sources of its mounts can be reached only from the
// host's root.
//
// The processes exchange JSON over SOCK_SEQPACKET Unix sockets, descriptor 3 of
// each child. The server treats envd as hijacked: once envd runs, the
// server never receives a descriptor from it, follows no path that it names, and
// ends a sandbox that breaks the protocol.
//
// The table of TestEscape lists the actions that no code in a sandbox may perform. Ending its
// own sandbox is not in the table: root inside can starve envd, which has the same id.
//
// The kernel counts inotify instances and watches, POSIX message queues and timers, queued
// signals, locked memory and processes by user. With namespaces one sandbox gets at most an
// eighth of the limits of the server's user. All sandboxes of an ordinary user together get
// at most half; those of root are counted under ids of their own. All sandboxes together may
// have at most half of the processes of the machine, half of those that the control groups of
// the server allow, or [Options].Processes. Without namespaces and without a control group
// for processes, a sandbox with an id of its own may have an eighth, and one with the
// server's id is not limited. The server and the processes that supervise sandboxes have all
// their threads before the first sandbox starts, so that they continue when no process can be
// started. The processes of one sandbox together may open half of the machine's files, but
// each of them may open 256 in any case. If there is only one id, sandboxes share the counts
// that the kernel keeps by the host's id regardless of the namespace: epoll watches, memory
// of pipes, and descriptors in transit through sockets. A sandbox without namespaces and
// without an id of its own shares all of this with the server's user and with the other
// sandboxes: it may take all of that user's inotify instances.
//
// Topics that both halves use have a package each: spawn and hello re-execute this binary and
// recognise it; cgroup and counter limit sandboxes; seccomp, landlock and capability restrict
// them; saved and layer write their files; place, holder and halt replace namespaces on
// machines that refuse them; instance and orphan end the remains of a server. For tests,
// escapetest lists the escapes that a sandbox must prevent, chaintest has processes that are
// hard to end, and imagetest makes layers by hand.
package room
