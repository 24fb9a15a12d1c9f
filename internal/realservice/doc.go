// Package realservice builds for tests the parts of the real service that
// public packages provide: a Jupyter server with ipykernel, in the versions of
// the template code-interpreter-v1 and with the state that its startup script
// leaves in the user's namespace; in front of it a stand-in for the service's
// interpreter, with the faults of the original; our own envd; and the routing
// for the unmodified SDK.
//
// It is not a sandbox. Code runs as the user of the tests, on their machine,
// and /home/user is a directory of the test. There is no kernel for JavaScript,
// so no JavaScript context exists at the start.
package realservice
