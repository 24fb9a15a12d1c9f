// Package cloud is the local cloud: an E2B-compatible service inside one
// process. This package puts its parts together:
//
//   - control answers the REST API, and lifecycle keeps the records and
//     lifetimes;
//   - connlimit bounds the connections of clients;
//   - edge is the single entry point: it decides whether a request is for the API
//     or for a port of a sandbox, and forwards it there;
//   - engine/room isolates the sandboxes, and network is their egress path;
//   - reexec makes this program's binary pid 1 of a sandbox, where envd,
//     interpreter and kernel answer;
//   - pyenv finds what the kernels run; requestlog remembers which requests were
//     made.
//
// Programs outside this module use it through sandbox/local.
package cloud
