// Package cloud is the local cloud: an E2B-compatible service inside one
// process. This package puts its parts together. Clients reach these parts:
//
//   - tlsdoor lets one port speak http and https, and connlimit bounds the
//     connections of clients;
//   - edge is the single entry point: it decides whether a request is for the API
//     or for a port of a sandbox, and forwards it there;
//   - control answers the REST API, and lifecycle keeps the records and
//     lifetimes;
//   - requestlog remembers the latest requests, and telemetry the logs and
//     metrics of sandboxes.
//
// These run sandboxes:
//
//   - engine has the engines: room, docker, gvisor and wasm;
//   - reexec makes this program's binary pid 1 of a sandbox, where child starts
//     processes, pty opens terminals, and envd, interpreter and kernel answer;
//   - envdclient sends the server's own requests to an envd;
//   - network is the egress path of sandboxes, and headers puts secrets into
//     requests on it;
//   - mounts opens directories of this machine for sandboxes, survey finds paths
//     on this machine that are closed to other users, and shortage recognises
//     the resources that it has run out of.
//
// These keep data:
//
//   - store outlives the process; layers, volumes, templates and secrets are in
//     it, and ordered keeps lists in their order;
//   - builds builds templates, image fetches container images, and treecopy
//     copies files into a build and out of it.
//
// These are prepared on this machine, in directories of setupdir: pyenv finds or
// makes the Python of kernels, gvisorenv and wasmenv the programs of their
// engines, and linuxprogram the program that containers run. hostprogram starts
// the programs for that.
//
// Programs outside this module use it through sandbox/local.
package cloud
