// Package lifecycle keeps the records of a cloud's sandboxes: which ones exist,
// how long they live, and how they ended. It knows nothing of HTTP.
//
// # States
//
//	starting  takes a place; nobody finds it       Create
//	running   has a record; everybody finds it     from Create's return until its end
//	ending    has no record, keeps its place       Kill, its lifetime, its own death, Close
//	ended     has freed its place; how it ended is remembered for a while
//
// A record leaves the registry exactly once, and whatever removed it ends the
// sandbox. Its place becomes free only when everything in the sandbox is dead,
// so there are never more sandboxes on the machine than the limit allows.
package lifecycle
