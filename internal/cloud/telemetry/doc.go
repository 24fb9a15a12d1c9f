// Package telemetry keeps a log and a series of metrics for each sandbox.
//
// # Logs
//
// A log contains entries of the server about the sandbox, and entries of the daemon inside. The
// names of the loggers distinguish them. The loggers envd, process and kernel are inside, and
// the code of the sandbox may forge their entries. All other loggers belong to the server. The
// times of entries are the server's times, and all times in a log are different.
//
// A log takes up to 8 MiB, including the overhead of its entries, and all logs together take up
// to 128 MiB. The oldest entries are dropped first, and those of ended sandboxes before all
// others. An entry in their place reports this. The size and the number of entries from inside
// are bounded before they are kept. A log is kept for an hour after the end of its sandbox, but
// never longer than the server runs.
//
// # Metrics
//
// Running sandboxes are measured every 5 seconds. One goroutine measures all of them; it exists
// only while a sandbox runs. The series of a sandbox lasts as long as the sandbox, including
// its pauses. Older parts of a series have fewer samples.
package telemetry
