//go:build linux

package layer

import (
	"os"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestMergeDepth checks the bound on directories inside each other, and the values beside it.
func TestMergeDepth(t *testing.T) {
	t.Parallel()
	from, err := os.Open(t.TempDir())
	must.Do(t, err)
	defer from.Close()
	to, err := os.Open(t.TempDir())
	must.Do(t, err)
	defer to.Close()
	for depth := maxDepth - 1; depth <= maxDepth+1; depth++ {
		if err := mergeDirectory(to, []*os.File{from}, false, "/", depth); (err != nil) != (depth > maxDepth) {
			t.Errorf("%d directories deep: got %v, want an error above %d", depth, err, maxDepth)
		}
	}
}
