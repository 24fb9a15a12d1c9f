//go:build !unix

package template

import "io/fs"

// inodeOf returns false: here each name is copied as a separate file.
func inodeOf(fs.FileInfo) (of inode, several bool) { return inode{}, false }
