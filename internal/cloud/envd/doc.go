// Package envd is the daemon inside a sandbox. It serves processes, terminals, files, watches
// and metrics with the wire protocol of E2B's envd. It serves HTTP/1.1 on port 49983: two
// Connect services, process.Process and filesystem.Filesystem, and a few plain routes.
//
// This daemon is more helpful than E2B's envd in cases in which no client can depend on the
// difference. The end of a command does not wait for processes that it left behind (see
// outputGrace). A kill reaches all processes of the command, and is answered when all of them have
// ended. Polling a watcher returns every event that has already happened. An upload that breaks off
// keeps the old file.
//
// Everything here runs inside the sandbox, and trusts a caller who has the access token. File
// operations have the rights of the daemon, as in E2B's envd. The user of a request decides
// only how paths expand, who owns new files, and as which user processes run. The sandbox
// around the daemon protects the host.
package envd
