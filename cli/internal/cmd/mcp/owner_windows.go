package mcp

import (
	"io/fs"
	"os"
)

// keepOwner does nothing: a new file has the rights that its directory gives.
func keepOwner(*os.File, fs.FileInfo) error { return nil }
