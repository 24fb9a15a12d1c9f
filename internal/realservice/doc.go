// Package realservice builds a service for tests, with the parts of E2B's real service that public
// packages provide:
//
//   - a Jupyter server with ipykernel, in the versions of the template code-interpreter-v1, and
//     with the state that the template's startup script leaves in the user's namespace
//   - in front of this server, a stand-in for the service's interpreter, with the faults of the
//     original
//   - our own envd
//   - the routing for the unmodified SDK
//
// The service isolates nothing: it has no real sandbox. Code runs as the user of the tests, on the
// machine of the tests, and /home/user is a directory of the test. There is no kernel for
// JavaScript, so no JavaScript context exists at the start.
package realservice
