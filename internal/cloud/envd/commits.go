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

// inode is a file, whatever its names are.
type inode struct{ device, number uint64 }

func inodeOf(info fs.FileInfo) inode {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return inode{}
	}
	return inode{uint64(stat.Dev), stat.Ino}
}

// commits keeps uploads to one file apart: each is there as a whole before or after
// every other one.
type commits struct {
	mu         sync.Mutex
	incomplete map[inode]bool // created by an upload that goes on
	// turns order the writes over what was there; files share them by number.
	turns [64]sync.Mutex
}

func newCommits() *commits { return &commits{incomplete: make(map[inode]bool)} }

// create creates a file that finish or discard is called for. Its error is
// [fs.ErrExist] when there is one.
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

// discard removes the file that create made, unless path is another one by now.
func (c *commits) discard(path string, node inode) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.incomplete, node)
	if info, err := os.Lstat(path); err != nil || inodeOf(info) != node {
		return nil
	}
	return os.Remove(path)
}

// supersede takes the name from an upload that goes on, which then ends as if it
// had been the earlier one. It reports whether node was such an upload's.
func (c *commits) supersede(path string, node inode) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.incomplete[node] {
		return false, nil
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return true, nil // gone already
	}
	if info, err := os.Lstat(real); err != nil || inodeOf(info) != node {
		return true, nil
	}
	return true, os.Remove(real)
}

// turn is held while the content of node is replaced.
func (c *commits) turn(node inode) *sync.Mutex { return &c.turns[node.number%uint64(len(c.turns))] }
