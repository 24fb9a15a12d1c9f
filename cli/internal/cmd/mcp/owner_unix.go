//go:build unix

package mcp

import (
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives a new file the owner of the file that like describes. A file of a user thus
// remains the user's when e2bctl runs with sudo.
func keepOwner(file *os.File, like fs.FileInfo) error {
	made, err := file.Stat()
	if err != nil {
		return err
	}
	old, isOld := like.Sys().(*syscall.Stat_t)
	own, isOwn := made.Sys().(*syscall.Stat_t)
	if !isOld || !isOwn || old.Uid == own.Uid && old.Gid == own.Gid {
		return nil
	}
	return file.Chown(int(old.Uid), int(old.Gid))
}
