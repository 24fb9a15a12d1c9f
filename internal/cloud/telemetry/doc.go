// Package telemetry keeps a log and a series of metrics for each sandbox.
//
// # Logs
//
// A log has entries of the server about the sandbox, and of the daemon inside. The names of
// their loggers tell them apart: envd, process and kernel are inside, and their entries are
// only as true as the sandbox's code lets them be; every other name is the server's. Times
// are the server's, and all different in one log.
//
// A log holds 8 MiB, including the cost of keeping it, and all logs together hold 128. The
// oldest entries are dropped first, those of sandboxes that have ended before all others,
// and an entry in their place says so. Entries from inside are bounded in size and number
// before they are kept. A log stays for an hour after the end of its sandbox, and never
// outlives the server.
//
// # Metrics
//
// Sandboxes that run are measured every 5 seconds, all by one goroutine, which exists only
// while one runs. The series of a sandbox lasts as long as the sandbox, through its pauses.
// Its older parts have fewer samples.
package telemetry
