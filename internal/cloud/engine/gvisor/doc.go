// Package gvisor is the engine that runs sandboxes in gVisor, a kernel in user space, in a room.
//
// Its sandbox is a sandbox of the room, with its files, layers, mounts, limits, freezing and end.
// The room starts only runsc, gVisor's program, and all programs of the sandbox run in gVisor,
// whose root directory the room built. So code has two walls around it: gVisor, which handles its
// system calls instead of this machine's kernel, and the namespaces and limits of the room.
//
// # Processes
//
// In the server: this package. Its report lists the features that are missing.
//
// In the sandbox of the room (package inside): the first stage builds the files, and makes a
// directory above theirs, with everything that runsc needs, the root of this process. The second
// stage, pid 1, keeps its capabilities, which are those of the sandbox's own user namespace, and
// starts runsc: its gofer and its sentry. It relays the messages between the server and envd: to
// the server it is the envd of a room, to envd the server of a tunnel.
//
// In gVisor: envd, the same program, as the first process. Its standard input and output are the
// tunnel. gVisor has no other sockets or descriptors of the host, only these and two directories
// that its gofer serves: the root and /tmp.
//
// # Files
//
// gVisor keeps no files of its own: each write goes at once to the file system that the room built.
// So the room saves all files of a frozen sandbox, templates and snapshots of both engines have the
// same files, and sandboxes of both engines can share volumes.
//
// # Memory
//
// gVisor itself stops processes, whether or not their memory is saved: some of them crash when a
// control group freezes gVisor. Before that, both ends of the tunnel stand still with nothing on
// the way between them (package tunnel). Saved memory is a checkpoint of gVisor in a directory that
// the server passes in and then closes to the sandbox, with a note of the machine that it depends
// on. A sandbox that starts with it gets a runsc process that restores the checkpoint instead of
// starting envd. The restored envd joins the tunnel of its new server and takes the id, the token
// and the environment of the new sandbox.
//
// When memory runs out, this machine's kernel ends some process of gVisor, and processes inside see
// no more than a SIGKILL. Envd asks the second stage through the tunnel whether that was the cause.
//
// # Process 1
//
// Unlike Linux, gVisor delivers any signal to process 1, which is envd. A seccomp filter on all
// processes inside refuses signals to it. The second stage also asks envd for a sign of life from
// time to time, and ends the sandbox if there is none for over a minute.
//
// # The network
//
// Ports are reached through the tunnel. gVisor has its own network stack, which reads and writes
// packets at one end of a pair of devices, in an otherwise empty network namespace. The other end
// is in the namespace of the sandbox, where every address is local: packets of programs to any
// address arrive at the sockets of the room's egress path, and so at the rules of the server. Where
// the room has no such path gVisor has no device either, and only envd's proxy leads out, through
// the tunnel.
package gvisor
