//go:build linux

package envd

import (
	"io/fs"
	"sync"
	"syscall"
)

// inode identifies a file regardless of its names.
type inode struct{ device, number uint64 }

func inodeOf(info fs.FileInfo) inode {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return inode{}
	}
	return inode{uint64(stat.Dev), stat.Ino}
}

// fileLocks contains locks that serialize uploads to the same file, so that each upload is complete
// before or after every other upload. The index of the lock for a file depends on the inode number,
// so several files may share a lock.
type fileLocks [64]sync.Mutex

// lockOf returns the lock for a file. It must be held while the content of the file is replaced.
func (t *fileLocks) lockOf(info fs.FileInfo) *sync.Mutex {
	return &t[inodeOf(info).number%uint64(len(t))]
}
