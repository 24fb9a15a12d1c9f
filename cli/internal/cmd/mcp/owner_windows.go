package mcp

import (
	"io/fs"
	"os"
)

// keepOwner does nothing: a new file inherits the access rights of its directory.
func keepOwner(*os.File, fs.FileInfo) error { return nil }
