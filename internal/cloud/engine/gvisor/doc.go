// Package gvisor is the engine that runs sandboxes in gVisor, a kernel in user space, in a room.
//
// A sandbox of it is a sandbox of the room, with its files, layers, mounts, limits, freezing and
// end, in which nothing is started but runsc, gVisor's program. What runs in the sandbox runs
// in gVisor's, whose root directory is what the room built. So code has two walls around it:
// gVisor, whose system calls are not this machine's, and the namespaces and limits of the room.
//
// # What runs where
//
// In the server: this package. It says in its report what there is not.
//
// In the sandbox of the room (package inside): the first stage builds the files, and makes the
// root of this process a directory above theirs, which has what runsc needs. The second stage,
// pid 1, keeps its capabilities, which are those of the sandbox's own user namespace, and
// starts runsc: its gofer and its sentry. It passes on what the server and envd say to each
// other: to the server it is the envd of a room, to envd the server of a tunnel.
//
// In gVisor: envd, the same program, as the first process. Its standard input and output are the
// tunnel. So there are no sockets and no descriptors of the host in gVisor but these, and two
// directories that its gofer serves: the root and /tmp.
//
// # Files
//
// gVisor keeps no files of its own: what is written is written to the file system that the room
// built, at once. So what the room saves of a frozen sandbox is complete, templates and
// snapshots of both engines have the same files, and volumes are the same for whoever has them.
//
// # Memory
//
// Processes are stopped by gVisor itself, whether their memory is saved or not: some of them crash
// when a control group freezes gVisor. Before that, both ends of the tunnel stand still with
// nothing on the way between them (package tunnel). Saved memory is a checkpoint of gVisor in a
// directory that the server passes and then closes to the sandbox, with a note of the machine that
// it depends on. Whoever starts with it gets a process of runsc that restores it instead of
// starting envd, and envd, which goes on, joins the tunnel of its new server and takes the id, the
// token and the environment of the new sandbox.
//
// When memory runs out, this machine's kernel ends some process of gVisor, and processes inside see
// no more than a SIGKILL. Envd asks the second stage through the tunnel whether that was it.
//
// # Process 1
//
// Unlike Linux, gVisor delivers any signal to process 1, which is envd. A filter of system calls
// that all processes inside have refuses to send it one. The second stage also asks envd for a
// sign of life from time to time, and ends the sandbox if there is none for over a minute.
//
// # The network
//
// Ports are reached through the tunnel. gVisor has a network stack of its own, which reads and
// writes packets at one end of a pair of devices, in a network namespace where there is nothing
// else. The other end is in the namespace of the sandbox, where every address is local: what
// programs send to any address arrives at the sockets of the room's egress path, and so at the
// rules of the server. Where the room has no such path gVisor has no device either, and only
// envd's proxy leads out, through the tunnel.
package gvisor
