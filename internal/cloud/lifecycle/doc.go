// Package lifecycle keeps the records of a cloud's sandboxes: which ones exist, what
// state they are in, how long they live, and how they ended. It knows nothing of HTTP.
//
// # States
//
//	starting  takes a place; nobody finds it                Create
//	running   has a place and a lifetime                    until its lifetime is over, Pause, Kill, its death
//	pausing   on the way to paused                          keeps its place until it is paused
//	paused    has no place; see below what is kept of it    until Connect, Resume, Wake, Kill
//	resuming  on the way to running                         has a place again
//	snapshotting  running, and standing still for a moment  until its files and memory are copied
//	killing   on the way out; only Kill's caller waits      keeps its place until everything in it is dead
//	ended     how it ended is remembered for an hour
//
// What may happen in which state, and who waits for whom, is the table in state.go.
// There are never more sandboxes with a place than the limit allows; frozen ones, which
// have none, are bounded by number and by memory.
//
// # What a pause keeps
//
// A pause with memory stops the processes and leaves them where they are. In a durable
// store, it also copies the files, and where the engine can save it the memory, so that after
// the end of the server the sandbox can be resumed from them. Without a saved memory, what was
// a pause with memory is a filesystem pause then. A filesystem pause copies the files, in every
// store, and ends the processes.
//
// A memory that cannot be saved fails a pause that was asked for; one that nobody asked for
// keeps the files. That of a sandbox whose envd does not answer is not saved. Where no more
// processes may be kept, a memory that is saved is only in the store. One that this machine
// cannot restore is refused, and the sandbox stays paused: without its memory it can be resumed.
//
// What a pause saved stays until the next pause replaces it or Kill removes it: a sandbox that
// ends in any other way after it was resumed is paused again, as it was at its latest pause,
// and can be resumed from that. A sandbox that is resumed without its memory loses that of its
// frozen processes, which end.
//
// # Snapshots and forks
//
// A snapshot copies the written files of a running sandbox to a layer, and where the engine can
// save it the memory to another one. The sandbox stands still for that time, and is the same
// afterwards. What it stood on and these layers are the chain that others begin with. They share
// its files where the engine can do that, and hold the layers for as long as they exist;
// elsewhere each begins with a copy. The memory they hold until they run. A fork is a snapshot
// whose layers all children begin with, and that go with the last of them.
//
// Unlike on the service, a snapshot is nothing that its source could be resumed from: a
// source that ends is gone, unless it was paused before. The disk of a machine would fill
// with what nobody asked to keep.
package lifecycle
