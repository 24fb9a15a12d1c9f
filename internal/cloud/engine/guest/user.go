//go:build linux

package guest

import "syscall"

// User is an account inside a sandbox.
type User struct {
	Name        string
	UID, GID    uint32
	Home, Shell string
	// Credential is the identity that processes of the user run with; nil keeps the
	// envd's own id, where a sandbox has only one.
	Credential *syscall.Credential
}
