// Package guest is what the server and a sandbox both know of the sandbox: its
// configuration, its users and what is where in its file system.
package guest
