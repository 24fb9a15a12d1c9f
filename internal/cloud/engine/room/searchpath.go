//go:build linux

package room

import (
	"os"
	"path/filepath"
	"strings"
)

// SearchPath returns [DefaultPath] followed by the bin directories of programs that have their own
// directory in /usr/local, such as Go.
func SearchPath() string { return searchPath("/usr/local") }

func searchPath(local string) string {
	path := DefaultPath
	names, _ := filepath.Glob(filepath.Join(local, "*", "bin")) // the pattern is well-formed
	for _, name := range names {
		if isDirectory(filepath.Dir(name)) && isDirectory(name) && !strings.Contains(name, ":") {
			path += ":" + name
		}
	}
	return path
}

// isDirectory reports whether name is a directory and not a link. Links do not count, because a
// link is either a second name of a neighbour or leads to a directory that does not exist in
// sandboxes.
func isDirectory(name string) bool {
	info, err := os.Lstat(name)
	return err == nil && info.IsDir()
}
