// Package counter divides among sandboxes the resources that the kernel counts by user and not by
// process.
//
// These resources are inotify instances, queued signals and timers, POSIX message queues and
// processes. A user namespace does not start a new count. The kernel counts each use in the user
// namespace of the process, and also in the parent of that namespace, for the user that made the
// inner namespace. This goes on up to the host's namespace. Each level has its own maximum. So the
// share of one sandbox must be set on a level where only that sandbox is counted:
//
//   - with a range of ids, the namespace of each sandbox is made by a different
//     user (see spawn.Placement). In the room's namespace, all processes of a sandbox
//     then count as this one user, whatever users they become inside, and the
//     maximum applies to each sandbox separately. The room's namespace is also made
//     by a user of its own, so that no use in it counts for the host's root;
//   - with a single id, everything in a sandbox is one user of the room's
//     namespace. The maximum of the sandbox's own namespace applies to that
//     sandbox, and the maximum of the room's namespace to all sandboxes together.
//
// Without namespaces, only the limits of each single process apply.
package counter
