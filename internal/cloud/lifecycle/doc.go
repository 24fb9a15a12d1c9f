// Package lifecycle keeps the records of a cloud's sandboxes: their states, their lifetimes, and
// the reasons for their ends. It knows nothing of HTTP.
//
// # States
//
//	starting  takes a place; nobody finds it                Create
//	running   has a place and a lifetime                    until its lifetime is over, Pause, Kill, its death
//	pausing   on the way to paused                          keeps its place until it is paused
//	paused    has no place; the next section says more      until Connect, Resume, Wake, Kill
//	resuming  on the way to running                         has a place again
//	snapshotting  running, but stopped for a moment         until its files and memory are copied
//	killing   on the way out; only Kill's caller waits      keeps its place until all its processes are dead
//	ended     the reason is remembered for an hour
//
// The table in state.go has the effect of each event in each state, and whether it waits. The
// limit bounds the sandboxes with a place. Frozen sandboxes have none: they are bounded by number
// and by memory.
//
// # What a pause keeps
//
// A pause with memory stops the processes and keeps them in place. In a durable store, it also
// copies the files, and the memory if the engine can save it, so that the sandbox can be resumed
// after the server has ended. Without a saved memory, the pause then counts as a filesystem
// pause. A filesystem pause copies the files, in every store, and ends the processes.
//
// If the memory cannot be saved, a requested pause fails, and an automatic one keeps the files.
// The memory of a sandbox whose envd does not answer is not saved. If no more processes may be
// kept, a saved memory is only in the store. If this machine cannot restore a memory, the resume
// is refused and the sandbox stays paused: it can be resumed without its memory.
//
// A pause's files and memory stay until the next pause replaces them or Kill removes them. A
// sandbox that ends in any other way after it was resumed is paused again, as it was at its
// latest pause, and can be resumed from that. A sandbox that is resumed without its memory loses
// its frozen processes, which end.
//
// # Snapshots and forks
//
// A snapshot copies the written files of a running sandbox to a layer, and its memory to another
// layer if the engine can save it. The sandbox is stopped for that time, and is the same
// afterwards. Its own layers and these are the chain with which other sandboxes begin. If the
// engine can share files, the others share the chain's files, and hold its layers for as long as
// they exist; otherwise each begins with a copy. They hold the memory until they run. A fork is a
// snapshot with which all children begin, and which is removed with the last of them.
//
// Unlike on the service, a sandbox cannot be resumed from a snapshot of it: a source that ends is
// gone, unless it was paused before. Otherwise unwanted files would fill the disk.
package lifecycle
