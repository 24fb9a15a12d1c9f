//go:build !unix

package template

import "io/fs"

// inodeOf returns false for several. On this system, each name of a file is therefore copied as a
// separate file.
func inodeOf(fs.FileInfo) (of inode, several bool) { return inode{}, false }
