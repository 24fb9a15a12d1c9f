// Package runtime isolates sandboxes: the room they live in, the start of the
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
// processes. The room is then a process of the host that kills what outlived its
// agent, and [Report] says what is weaker.
//
// They speak JSON over SOCK_SEQPACKET Unix sockets, descriptor 3 of each child.
// The server treats the agent as hijacked: it never receives a descriptor from
// it, follows no path it names, and ends a sandbox that breaks the protocol.
package runtime
