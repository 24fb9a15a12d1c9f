// Package gvisor is the engine that runs sandboxes in gVisor, a kernel in user space. gVisor itself
// runs in a sandbox of the engine room.
//
// The room provides the files, layers, mounts, limits, freezing and end of a sandbox. The room
// starts only runsc, gVisor's program. All programs of the sandbox run in gVisor, with a root
// directory that the room built. So two layers isolate the code of a sandbox: gVisor, which handles
// system calls instead of this machine's kernel, and the namespaces and limits of the room.
//
// # Processes
//
// In the server: this package. Its report lists the features that are missing.
//
// In the sandbox of the room (package inside): the first stage builds the sandbox's files. It also
// makes a parent directory of these files, with everything that runsc needs. This directory becomes
// the root of the second stage. The second stage, pid 1, keeps its capabilities, which are those of
// the sandbox's own user namespace. It starts the two processes of runsc, the gofer and the sentry.
// It relays the messages between the server and envd: for the server, it acts as the envd of a room;
// for envd, it acts as the server of a tunnel.
//
// In gVisor: envd, which is the same program, as the first process. Its standard input and output
// are the tunnel. gVisor has no other sockets or descriptors of the host, except for two directories
// that the gofer serves: the root and /tmp.
//
// # Files
//
// gVisor keeps no files of its own: each write goes at once to the file system that the room built.
// So the room can save all files of a frozen sandbox. Templates and snapshots of both engines have
// the same files, and sandboxes of both engines can share volumes.
//
// # Memory
//
// A freeze makes gVisor itself stop the processes, even if their memory is not saved, because some
// processes crash when a control group freezes gVisor. Before this stop, both ends of the tunnel
// stop sending, and no data is in transit between them (package tunnel). Saved memory is a
// checkpoint of gVisor, together with a description of the machine that the checkpoint depends on.
// gVisor writes the checkpoint to a directory that the server passes in and then closes to the
// sandbox. In a sandbox that starts with saved memory, runsc restores the checkpoint instead of
// starting envd. The restored envd joins the tunnel of its new server, and gets the id, the token
// and the environment of the new sandbox.
//
// When memory runs out, this machine's kernel ends some process of gVisor. Processes inside only see
// a SIGKILL. Envd therefore asks the second stage through the tunnel whether memory ran out.
//
// # Process 1
//
// Unlike Linux, gVisor delivers any signal to process 1, which is envd. A seccomp filter on all
// processes inside refuses signals to process 1. The second stage also checks from time to time
// whether envd answers, and ends the sandbox if envd has not answered for over a minute.
//
// # The network
//
// The server reaches ports through the tunnel. gVisor has its own network stack. This stack reads and
// writes packets at one end of a pair of devices, in an otherwise empty network namespace. The other
// end of the pair is in the network namespace of the sandbox, where every address is local.
// Therefore packets of programs to any address arrive at the sockets of the room's egress path, where
// the rules of the server apply. If the room has no egress path, gVisor has no device either. Then
// programs reach the outside only with envd's proxy, through the tunnel.
package gvisor
