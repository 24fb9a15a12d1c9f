// Package cloud is the local cloud: an E2B-compatible service inside one
// process. This package puts its parts together. What clients reach:
//
//   - tlsdoor lets one port speak http and https, and connlimit bounds the
//     connections of clients;
//   - edge is the single entry point: it decides whether a request is for the API
//     or for a port of a sandbox, and forwards it there;
//   - control answers the REST API, and lifecycle keeps the records and
//     lifetimes;
//   - requestlog remembers which requests were made, and telemetry what
//     sandboxes say and use.
//
// What runs sandboxes:
//
//   - engine has the engines: room, docker, gvisor and wasm;
//   - reexec makes this program's binary pid 1 of a sandbox, where child starts
//     processes, pty opens terminals, and envd, interpreter and kernel answer;
//   - envdclient is what the server itself asks of an envd;
//   - network is the egress path of sandboxes, and headers puts secrets into what
//     takes it;
//   - mounts decides what sandboxes see of this machine, survey finds what of it
//     is closed to others, and shortage recognises what it has no more of.
//
// What is kept:
//
//   - store keeps what outlives the process; layers, volumes, templates and
//     secrets are in it, and ordered has what is listed in the order of lists;
//   - builds builds templates, image fetches container images, and treecopy
//     copies files into a build and out of it.
//
// What is prepared on this machine, in directories of setupdir: pyenv finds or
// makes what kernels run, gvisorenv and wasmenv what their engines run, and
// linuxprogram the program that containers run. hostprogram starts the programs
// that do so.
//
// Programs outside this module use it through sandbox/local.
package cloud
