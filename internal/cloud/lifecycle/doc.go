// Package lifecycle keeps the records of a cloud's sandboxes: their states, their lifetimes,
// and the reasons for their ends. It does not use HTTP.
//
// # States
//
//	starting  takes a place; no call finds it               Create
//	running   has a place and a lifetime                    until its lifetime or idle limit is over, Pause, Kill, or it dies
//	pausing   becomes paused                                keeps its place until it is paused
//	paused    has no place; see the next section            until Connect, Resume, Wake, or Kill
//	resuming  becomes running                               has a place again
//	snapshotting  running, but stopped for a moment         until its files and memory are copied
//	killing   ends; only the caller of Kill waits           keeps its place until all its processes are dead
//	ended     the reason is remembered for an hour
//
// The table in state.go defines the effect of each event in each state, and whether the event
// waits. The limit of a cloud bounds the number of sandboxes with a place. Frozen sandboxes
// have no place; other limits bound their number and their memory.
//
// # Idle limit
//
// A sandbox with an idle limit ends, or is paused, when nothing has used it for the time of the limit.
// Package edge notes each use. When the limit is reached, the registry asks the sandbox whether it is busy.
// A sandbox that is busy counts as used at that time. Creating, connecting, resuming and taking a
// snapshot count as a use, too. Calls that describe the sandbox or change its lifetime do not.
//
// # Contents of a pause
//
// A pause with memory stops the processes and keeps them. If the store is durable, the pause also
// copies the files to the store, so that the sandbox can be resumed after the server has ended. If
// the engine can save memory, the pause then also copies the memory. After the server has ended, a
// pause without saved memory counts as a filesystem pause. A filesystem pause copies the files, in
// every store, and ends the processes.
//
// If the memory cannot be saved, a requested pause fails, and an automatic pause keeps only the
// files. If envd does not answer, the memory is not saved. If the limit of frozen sandboxes is
// reached, no processes are kept, and the saved memory is only in the store. If this machine cannot
// restore the memory, a resume is refused, and the sandbox stays paused. The sandbox can be resumed
// without its memory.
//
// The files and memory of a pause are kept until the next pause replaces them or Kill removes them.
// If a resumed sandbox ends for any reason but Kill, it becomes paused again, in the state of its
// latest pause, and can be resumed from that state. A frozen sandbox that is resumed without its
// memory loses its processes.
//
// # Snapshots and forks
//
// A snapshot copies to a layer the files that a running sandbox has written. If the engine can save
// memory, the snapshot also copies the memory, to another layer. During the copy the sandbox is
// stopped, and it continues unchanged afterwards. The sandbox's own layers and the new layers form
// the chain with which other sandboxes begin. If the engine can share files, these other sandboxes
// share the files of the chain, and hold its layers as long as the sandboxes exist. Otherwise each
// of them begins with a copy. These sandboxes hold the layer of the memory until they run. A fork
// makes a snapshot with which all its children begin. This snapshot is removed with the last child.
//
// Unlike on E2B's service, a snapshot does not preserve the sandbox from which it was made: when
// this sandbox ends, it is gone, unless it was paused before. If ended sandboxes were kept, files
// that nobody wants would fill the disk.
package lifecycle
