//go:build unix

package mounts

import "syscall"

// directory makes opening fail for other files, instead of blocking until a pipe has a writer.
const directory = syscall.O_DIRECTORY
