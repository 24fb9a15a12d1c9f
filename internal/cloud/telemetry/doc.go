// Package telemetry keeps a log and a series of metrics for each sandbox.
//
// # Logs
//
// A log contains entries of the server about the sandbox, and entries of the daemon inside the
// sandbox. The name of the logger distinguishes the two kinds. The loggers envd, process and kernel
// are inside the sandbox, so the code of the sandbox may forge their entries. All other loggers
// belong to the server. The times of entries are the server's times. No two entries of a log have
// the same time.
//
// A log takes up to 8 MiB, including the overhead of its entries, and all logs together take up to
// 128 MiB. In each log, the oldest entries are dropped first, and an entry in their place reports
// this. If all logs together are too large, the entries of ended sandboxes are dropped before all
// others. The size and the number of entries from inside a sandbox are bounded before the entries
// are kept. The logs of the 1,000 sandboxes that ended last are kept for an hour, but never longer
// than the server runs.
//
// # Metrics
//
// Running sandboxes are measured every 5 seconds. One goroutine measures all of them. The goroutine
// exists only while a sandbox runs. The series of a sandbox is kept as long as the sandbox exists,
// also while the sandbox is paused. Older parts of a series have fewer samples.
package telemetry
