// Package counter divides resources among sandboxes: those that the kernel counts by user and not by
// process.
//
// These resources are inotify instances, queued signals and timers, POSIX message queues and
// processes. A user namespace does not start a new count: the kernel also counts each use in the
// namespace above, for the user that made the inner namespace, and so on up to the host's namespace.
// Each level has its own maximum. So the share of one sandbox must be set on a level where only that
// sandbox is counted:
//
//   - with a range of ids, the namespace of each sandbox is made by a different
//     user (see spawn.Placement). In the room's namespace each sandbox then counts
//     as that one user, however many users its processes become inside, and the
//     maximum applies to each sandbox separately. The room's namespace is also made
//     by a user of its own, so nothing here counts for the host's root;
//   - with a single id, everything in a sandbox is one user of the room's
//     namespace. The maximum of the sandbox's own namespace applies to that
//     sandbox, and the maximum of the room's namespace to all sandboxes together.
//
// Without namespaces, only the limits of each single process apply.
package counter
