// Package guest describes a sandbox for both the server and the sandbox itself: its configuration,
// its users and the layout of its file system. Package login has the files that the shells of a
// sandbox read.
package guest
