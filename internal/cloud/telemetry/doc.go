// Package telemetry keeps what sandboxes say and use: a log and a series of metrics for
// each.
//
// # Logs
//
// A log has entries of the server about the sandbox, and of the daemon inside. The names
// of their loggers tell them apart: envd, process and kernel are inside, and what they say
// is only as true as the sandbox's code lets it be; every other name is the server's. Times
// are the server's, and all different in one log.
//
// A log holds 8 MiB, counted with what keeping it takes, and all logs together hold 128. The
// oldest entries are dropped first, those of sandboxes that have ended before all others,
// and an entry in their place says so. What comes from inside is bounded in size and
// number before it is kept. A log stays for an hour after the end of its sandbox, and
// never outlives the server.
//
// # Metrics
//
// Sandboxes that run are measured every 5 seconds, all by one goroutine, which there is
// only while one runs. The series of a sandbox lasts as long as the sandbox, through its
// pauses; the older a part of it is, the fewer samples it has.
package telemetry
