//go:build linux

package child

import (
	"os"
	"path/filepath"
	"strings"
)

// LookPath returns the path of the program called name, as a process with the environment environ
// finds it. It returns "" if there is no such program. A name with a slash is returned unchanged.
func LookPath(name string, environ []string) string {
	if strings.Contains(name, "/") {
		return name
	}
	for _, dir := range filepath.SplitList(variable(environ, "PATH")) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && filepath.IsAbs(path) && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

func variable(environ []string, key string) string {
	for _, entry := range environ {
		if value, ok := strings.CutPrefix(entry, key+"="); ok {
			return value
		}
	}
	return ""
}
