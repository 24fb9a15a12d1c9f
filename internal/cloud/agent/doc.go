// Package agent is the daemon inside a sandbox: processes, terminals, files,
// watches and metrics, on the wire of envd. It serves HTTP/1.1 on port 49983: two
// Connect services, process.Process and filesystem.Filesystem, and a few plain
// routes.
//
// Everything here runs inside the sandbox and trusts its caller as far as the
// access token goes: file operations have the agent's rights, as envd's have, and
// the user of a request only decides how paths expand, who owns what is created,
// and as whom processes run. What protects the host is the sandbox around it.
package agent
