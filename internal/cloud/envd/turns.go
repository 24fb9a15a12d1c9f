//go:build linux

package envd

import (
	"io/fs"
	"sync"
	"syscall"
)

// inode identifies a file independently of its names.
type inode struct{ device, number uint64 }

func inodeOf(info fs.FileInfo) inode {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return inode{}
	}
	return inode{uint64(stat.Dev), stat.Ino}
}

// turns serializes uploads that overwrite the same file, so that each is complete before
// or after every other one. Files share the locks, by inode number.
type turns [64]sync.Mutex

// of returns the lock to hold while the content of a file is replaced.
func (t *turns) of(info fs.FileInfo) *sync.Mutex { return &t[inodeOf(info).number%uint64(len(t))] }
