//go:build linux

package guest

import "syscall"

// IDs is the number of ids of a sandbox, unless it has only one.
const IDs = 1 << 16

// User is an account inside a sandbox.
type User struct {
	Name        string
	UID, GID    uint32
	Home, Shell string
	// Credential is the identity of the user's processes. If it is nil, the processes have the same
	// id as envd, because the sandbox has only one id.
	Credential *syscall.Credential
}
