//go:build linux

package envd

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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

// commits separates uploads to the same file: each is complete before or after
// every other one.
type commits struct {
	mu         sync.Mutex
	incomplete map[inode]bool // created by an upload still in progress
	// turns serializes overwrites of existing files. Files share the locks, by
	// inode number.
	turns [64]sync.Mutex
}

func newCommits() *commits { return &commits{incomplete: make(map[inode]bool)} }

// create creates a file; the caller must then call finish or discard. It returns
// [fs.ErrExist] if the file exists.
func (c *commits) create(path string) (*os.File, inode, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, inode{}, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, inode{}, errors.Join(err, f.Close(), os.Remove(path))
	}
	node := inodeOf(info)
	c.incomplete[node] = true
	return f, node, nil
}

func (c *commits) finish(node inode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.incomplete, node)
}

// discard removes the file that create made, unless path now names a different one.
func (c *commits) discard(path string, node inode) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.incomplete, node)
	if info, err := os.Lstat(path); err != nil || inodeOf(info) != node {
		return nil
	}
	return os.Remove(path)
}

// supersede takes the name from an upload that is still in progress; that upload
// then ends as if it had been the earlier one. It reports whether node belonged to
// such an upload.
func (c *commits) supersede(path string, node inode) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.incomplete[node] {
		return false, nil
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return true, nil // already gone
	}
	if info, err := os.Lstat(real); err != nil || inodeOf(info) != node {
		return true, nil
	}
	return true, os.Remove(real)
}

// turn returns the lock to hold while the content of node is replaced.
func (c *commits) turn(node inode) *sync.Mutex { return &c.turns[node.number%uint64(len(c.turns))] }
