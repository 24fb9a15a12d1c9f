// Package envd is the daemon inside a sandbox: processes, terminals, files, watches and
// metrics, with envd's wire protocol. It serves HTTP/1.1 on port 49983: two Connect
// services, process.Process and filesystem.Filesystem, and a few plain routes.
//
// It is kinder than envd where nobody can depend on the difference: the end of a command
// does not wait for processes it left behind (see outputGrace), a kill reaches the whole
// command and is answered when all of it is gone, polling a watcher returns every event
// that has already happened, and an upload that breaks off keeps the old file.
//
// Everything here runs inside the sandbox and trusts its caller as far as the access
// token goes. File operations have envd's rights, as in envd. The user of a request
// decides only how paths expand, who owns new files, and which user processes run as.
// The sandbox around envd protects the host.
package envd
