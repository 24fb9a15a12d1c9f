//go:build unix

package template

import (
	"io/fs"
	"syscall"
)

// inodeOf returns the inode of a file. several reports whether the file has several names.
func inodeOf(info fs.FileInfo) (of inode, several bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() || stat.Nlink < 2 {
		return inode{}, false
	}
	return inode{uint64(stat.Dev), stat.Ino}, true
}
