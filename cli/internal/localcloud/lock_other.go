//go:build !unix

package localcloud

import (
	"os"
	"syscall"
)

// On systems without a local cloud, no process holds its lock.
func lockFile(*os.File) (bool, error)  { return true, nil }
func lockHolder(*os.File) (int, error) { return 0, nil }

func ownSession() *syscall.SysProcAttr { return nil }
