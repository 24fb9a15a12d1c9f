// Package room is the engine that isolates sandboxes with namespaces. It is the part of the
// engine that runs in the server: it starts the room, which is the process that supervises
// sandboxes, and it boots, limits and serves sandboxes. The code of the other processes is in
// package inside, and their messages are in package wire.
//
// Four processes take part. All of them run the same binary, which is re-executed:
//
//   - the server is the program that called [Start];
//   - the keeper runs outside of the namespaces. It waits until the server has ended, for
//     whatever reason, and then removes the control groups and the instance directory;
//   - the room is the supervisor of all sandboxes: pid 1 of the namespaces that
//     contain all sandboxes. It dies with the server, and the kernel then ends
//     all processes in these namespaces;
//   - envd is pid 1 of one sandbox. It starts in two stages. The first stage builds
//     the sandbox (mounts, users, limits). Then envd executes itself again with the
//     restrictions in force, so that the restrictions apply to all its threads.
//
// A fifth process, the zygote, is a Python process that has loaded the modules that kernels
// commonly load. It runs in the room's user and pid namespaces, over the file system with which
// every sandbox begins. It has no network and no capabilities, and runs no user code. A process
// forked from the zygote joins the control groups and the namespaces of a sandbox, and gets the
// same restrictions as every other process of the sandbox. Only then does the forked process talk
// to envd. All kernels that are forked from one zygote share hash seeds and addresses. If the
// machine has no modules to load, or the zygote has not loaded them yet, kernels start cold.
//
// A warm sandbox has its first kernel before it has an owner. The kernel waits for its
// variables, directory and standard files. Envd sends these at the first use of the kernel.
// The kernel is ended in two cases: if it is not used within a minute after the first use of
// the sandbox, or if the file system of the warm sandbox is replaced. In two cases, the fork of
// a kernel is postponed until there are no requests: while a caller waits for a sandbox, and if
// no code was run in the last sandbox.
//
// On a machine that refuses namespaces, envd runs in the namespaces of the host, among the host's
// processes. Landlock and seccomp restrict it: it has no network and no sockets. Landlock does not
// check calls that change mode, owner or times of a file, or calls that watch a directory.
// Therefore envd makes these calls for the programs of its sandbox (package holder). On such a
// machine, the room is also a process of the host, and ends processes that outlive their envd. A
// guard, which started the room, ends processes that outlive the room. [engine.Report] lists the
// weaker guarantees. If processes could not be ended, Close returns the error
// [engine.ErrProcessesLeft].
//
// A sandbox has a network namespace with only a loopback device. Its first stage makes every
// address local to the sandbox, so that its programs' traffic to any address arrives at two
// sockets in the namespace, one for TCP and one for DNS queries over UDP. The first stage passes
// these sockets to the server. Of the hosts outside, programs can reach only those that
// [engine.SandboxOptions].Egress allows. The server receives descriptors from a sandbox only in the
// first stage: these sockets, and the sandbox's file system. During the first stage, no code of the
// sandbox has run yet: the process that later becomes envd runs only the server's own program.
// After the first stage, no process inside may change routes or rules. If a process could do so, it
// would only cut off its own sandbox. If the kernel lacks nftables or its tproxy, programs reach
// the outside only through envd's proxy, and [engine.Report] reports this. At its start, the room
// makes one connection to find out whether the kernel has both nftables and tproxy.
//
// A sandbox sees some directory trees of the host. In a sandbox with a range of ids, the account
// root owns those files in the trees that the host's root owns. Therefore some files are hidden from
// the sandbox, regardless of their owner: files that others on the host may neither read nor
// execute, and directories that others may not enter. Examples are a key with mode 0600, a database
// of root:shadow with mode 0640, and a helper with mode 4750. The server searches for these files
// and directories once per start, before the first sandbox. It skips directories that have not
// changed since a survey that is less than a day old. So if only the mode of a file has changed,
// sandboxes may still see the file. This lasts until a room has run for some seconds and the next
// room starts, or until the survey is a day old. If the top directory of a requested tree is itself
// closed to others, sandboxes see the complete tree. If root and user are one id, the host's
// permissions also apply inside.
//
// There are two kinds of connections into a sandbox. Envd serves connections to the sandbox's own
// ports, and gets one end of a pair of sockets for each of them. For a connection to the port of a
// program, the room makes a socket in the network namespace of the sandbox, and the server connects
// this socket. A connection of the second kind uses no descriptor of envd. So clients can reach
// envd even if there are many connections to programs.
//
// If the server may make device nodes, as root outside of containers may, each sandbox has its own
// nodes. Otherwise null, zero, full, random, urandom and tty are the nodes of the host, and locks
// and watches on them are visible to the host and to other sandboxes.
//
// A sandbox runs on as many processors as its limit, and the server chooses the processors.
// /proc/cpuinfo and the files about processors in /sys list only the chosen processors. A program
// may still choose other processors to run on, because the control group enforces the limit.
//
// Each sandbox has its own file as /proc/meminfo. The room writes the file, and keeps the only
// descriptor for writing. The room has a lease on the file: when a program opens the file, the open
// waits until the room has written new text. The room does not write at other times. An open with
// O_NONBLOCK may have to be repeated, as for any file with a lease. No process of a sandbox, not
// even envd, can take a lease, because a lease on a file of a mount would block the host's programs.
//
// A sandbox is frozen by a control group of version 2, or by SIGSTOP on machines without such a
// group. It is never frozen by version 1, because processes that version 1 has frozen cannot be
// killed. Frozen processes keep their memory. Like a running sandbox, a frozen sandbox can be
// closed, and ends with its server. A freeze first cuts all connections into and out of the
// sandbox. Clocks continue during a freeze. If the time of a sleep is over before the thaw, the
// sleep ends at the thaw.
//
// The files of a frozen sandbox can be saved, and another sandbox can begin with these files.
// Before any code of the sandbox runs, its first stage sends the server the file system that
// contains all files written in the sandbox. To save these files, the server starts a process that
// packs them in one file (see package saved). This process has the ids of the sandbox, and rights
// over these ids only. The first stage of the next sandbox reads the packed file before it mounts
// anything. Devices, sockets, /dev/shm and files hidden below a mount are not saved. Changes in a
// tree of the host are saved with the tree's path. On a machine that does not show this tree, the
// next sandbox has only the changed files at that path. Without namespaces, only the sandbox's own
// directory is saved. This directory has another path in the next sandbox.
//
// Saved files can become a layer: directories that any number of sandboxes share. In each
// sandbox, the layer is below the files that the sandbox itself writes (see package layer). The
// root of a sandbox with layers is an overlay, too, and only the files above the layers are saved.
// On the disk, the files of a layer have the same numeric owner ids as in sandboxes. Therefore the
// process that makes layers has its own ids, like a sandbox, and a mount of the layer's directory
// maps these ids to the ids on the disk. Each sandbox gets such a mount, too. Several layers are
// merged into one layer, which has links to their files and not copies.
//
// The root of a sandbox of a container image is an overlay of the image's layers. It has nothing of
// the host: no tree, no Python, no kernel of the zygote. No name in an image is trusted. In /dev,
// /proc, /sys, /etc/resolv.conf, /etc/hosts and /etc/hostname, in the files of accounts and in home
// directories, each sandbox has its own files, which replace the files of the image. No link of the
// image is followed while the host's files can still be reached. /run comes from the image, because
// packages make directories there for their programs. If the image does not have the accounts root
// and user, they are added above the image. With a single id, root and user are the same account,
// all files of an image belong to it, and other users of the image cannot be used. An image never
// falls back to a weaker isolation: without namespaces, a sandbox of an image is refused.
//
// The program that this package re-executes may be linked to libraries that an image does not
// have. In this case, the second stage is executed at the root of the host. Even there it has only
// the rights that it will have in the end. A mounter moves the second stage into the image before
// the second stage receives its role, and before any of the sandbox's code runs.
//
// A warm sandbox has a process, the mounter, that can still replace the sandbox's file system. The
// mounter is a fork of the first stage, and starts the program only when it is needed. It builds
// another file system on the same tmpfs, and makes this file system the root of all processes. The
// mounter can also mount the files that make programs trust the sandbox's authority. It has all
// capabilities in the sandbox, and ends before the sandbox has an owner. A sandbox with a single id
// has no mounter, because the sources of its mounts can be reached only from the host's root.
//
// The processes exchange JSON over SOCK_SEQPACKET Unix sockets, descriptor 3 of
// each child. The server assumes that envd may be under the control of hostile code. Once envd
// runs, the server never receives a descriptor from envd, never follows a path that envd sends, and
// ends a sandbox that violates the protocol.
//
// The table of TestEscape lists the actions that no code in a sandbox may perform. The table does not
// forbid code to end its own sandbox, because root inside can starve envd, which has the same id.
//
// The kernel counts inotify instances and watches, POSIX message queues and timers, queued
// signals, locked memory and processes by user. With namespaces, one sandbox gets at most an eighth
// of the limits of the server's user. All sandboxes of an ordinary user together get at most half
// of these limits. Sandboxes of root are counted under their own ids. All sandboxes together may
// have at most half of the processes of the machine, half of the processes that the control groups
// of the server allow, or [Options].Processes. Without namespaces and without a control group for
// processes, a sandbox with its own id may have an eighth of the processes, and a sandbox with the
// server's id is not limited. The server and the processes that supervise sandboxes start all their
// threads before the first sandbox, so that they continue to work when no process can be started.
// The processes of one sandbox together may open half of the files that the machine permits, but
// each process may always open 256. The kernel keeps some counts by the host's id, regardless of
// the namespace: epoll watches, memory of pipes, and descriptors in transit through sockets. If
// there is only one id, sandboxes share these counts. A sandbox without namespaces and without its
// own id shares all counts of this paragraph with the server's user and with the other sandboxes.
// For example, it may take all inotify instances of that user.
//
// The code that this package and package inside share is in further packages. spawn and hello
// re-execute this binary and detect that it was re-executed; cgroup and counter limit sandboxes;
// seccomp, landlock and capability restrict sandboxes; saved and layer write the files of
// sandboxes; place, holder and halt replace namespaces on machines that refuse namespaces; instance
// and orphan end the processes, and remove the files, that a dead server left. For tests,
// escapetest lists the escapes that a sandbox must prevent, chaintest has processes that are hard
// to end, and imagetest makes layers of images by hand.
package room
