//go:build unix

package mounts

import "syscall"

// directory has the system refuse what is none, instead of waiting for whoever writes to a
// pipe.
const directory = syscall.O_DIRECTORY
