//go:build linux

package room

import (
	"os"
	"path/filepath"
	"strings"
)

// SearchPath returns [DefaultPath] and, after it, the directories of programs that
// are installed below /usr/local each in a directory of its own, as Go is.
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

// isDirectory reports whether name is a directory and not a link, which is either a
// second name of a neighbour or leads to what sandboxes do not show.
func isDirectory(name string) bool {
	info, err := os.Lstat(name)
	return err == nil && info.IsDir()
}
