//go:build unix

package mounts

import "syscall"

// directory is the flag with which an open fails for other files. Without it, the open of a pipe
// would block until the pipe has a writer.
const directory = syscall.O_DIRECTORY
