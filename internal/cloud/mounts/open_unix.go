//go:build unix

package mounts

import "syscall"

// directory makes the system refuse other files, instead of waiting for a writer of a
// pipe.
const directory = syscall.O_DIRECTORY
