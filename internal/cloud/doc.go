// Package cloud is the local cloud: an E2B-compatible service inside one
// process. This package puts its parts together:
//
//   - control answers the REST API and keeps the records and lifetimes;
//   - connlimit bounds the connections of clients;
//   - edge is the one door: it finds out whether a request is for the API or for
//     a port of a sandbox, and carries it there;
//   - runtime isolates the sandboxes, and network is their way out;
//   - reexec makes this program's binary the agent inside a sandbox, where agent,
//     interpreter and kernel answer;
//   - python finds what the kernels run; requestlog remembers who asked for what.
//
// Programs outside this module use it through sandbox/local.
package cloud
