// Package envd is the daemon inside a sandbox: processes, terminals, files,
// watches and metrics, on the wire of envd. It serves HTTP/1.1 on port 49983: two
// Connect services, process.Process and filesystem.Filesystem, and a few plain
// routes.
//
// It is kinder than envd where nobody can depend on the difference: the end of a command
// does not wait for processes that it left behind (see outputGrace), a kill reaches all
// of a command and is answered when that is gone, events that are asked for are there,
// and an upload that breaks leaves the old file.
//
// Everything here runs inside the sandbox and trusts its caller as far as the
// access token goes: file operations have the agent's rights, as envd's have, and
// the user of a request only decides how paths expand, who owns what is created,
// and as whom processes run. What protects the host is the sandbox around it.
package envd
