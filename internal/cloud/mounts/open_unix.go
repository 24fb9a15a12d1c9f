//go:build unix

package mounts

import "syscall"

// directory is the open flag that makes an open fail for every file except a directory. Without
// this flag, the open of a pipe would block until the pipe has a writer.
const directory = syscall.O_DIRECTORY
