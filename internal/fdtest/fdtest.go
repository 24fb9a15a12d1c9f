// Package fdtest tells which files this process has open, for tests of code that must close them. It
// works on Linux. On other systems it finds nothing.
package fdtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// Open returns the files that this process has open among path and, if path is a directory, all below it.
// A file with several descriptors is returned once for each. path must be absolute and without symbolic
// links.
func Open(t testing.TB, path string) (open []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/self/fd/*")
	must.Do(t, err)
	for _, file := range all {
		// A file that was closed meanwhile has no name.
		if name, err := os.Readlink(file); err == nil && (name == path || strings.HasPrefix(name, path+"/")) {
			open = append(open, name)
		}
	}
	return open
}
