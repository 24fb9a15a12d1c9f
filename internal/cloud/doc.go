// Package cloud is the local cloud: an E2B-compatible service inside one process. It connects
// the parts of the local cloud, which have packages of their own. Clients reach these parts:
//
//   - localtls serves http and https on one port, and connlimit bounds the
//     connections of clients;
//   - edge is the single entry point: it decides whether a request is for the API
//     or for a port of a sandbox, and forwards it there;
//   - control serves the REST API, and lifecycle keeps the records and
//     lifetimes of sandboxes;
//   - requestlog records the latest requests, and telemetry the logs and
//     metrics of sandboxes.
//
// These parts run sandboxes:
//
//   - engine has the engines: room, docker, gvisor and wasm;
//   - reexec makes this program's binary pid 1 of a sandbox, where child starts
//     processes, pty opens terminals, and envd, interpreter and kernel serve
//     requests;
//   - envdclient sends the server's own requests to an envd;
//   - network is the egress path of sandboxes, and headers adds secrets to
//     requests on it;
//   - mounts opens directories of this machine for sandboxes, survey finds paths
//     on this machine that are closed to other users, and shortage recognises
//     that a resource of this machine is exhausted.
//
// These parts keep data:
//
//   - store keeps data beyond the life of the process: layers, volumes,
//     templates and secrets are in it, and ordered keeps lists in their order;
//   - builds builds templates, image fetches container images, and treecopy
//     copies files into the sandboxes of a build and out of them.
//
// These parts prepare programs on this machine, in directories that setupdir manages: pyenv
// finds or creates the Python of kernels. gvisorenv and wasmenv prepare the programs of their
// engines, and linuxprogram prepares the program that containers run. hostprogram runs programs
// of this machine for these packages.
//
// Programs outside this module use this package through sandbox/local.
package cloud
