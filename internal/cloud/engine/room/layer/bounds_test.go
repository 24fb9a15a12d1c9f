//go:build linux

package layer

import (
	"archive/tar"
	"bytes"
	"errors"
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

// TestUntarEntries checks the bound on the entries of an archive, with a lower bound than the real one.
// An entry that has no effect counts, too.
func TestUntarEntries(t *testing.T) {
	t.Parallel()
	for what, header := range map[string]tar.Header{
		"files": {Name: "file", Typeflag: tar.TypeReg}, "names of AUFS": {Name: metaPrefix + "aufs", Typeflag: tar.TypeReg}, "global headers": {Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "c"}},
	} {
		for n := range 5 {
			var archive bytes.Buffer
			w := tar.NewWriter(&archive)
			for range n {
				must.Do(t, w.WriteHeader(&header))
			}
			must.Do(t, w.Close())
			to, err := os.Open(t.TempDir())
			must.Do(t, err)
			u := &untar{o: TarOptions{To: to, IDs: 1}, most: 3, left: 1}
			must.Do(t, u.openRoot())
			err = u.entries(tar.NewReader(&archive))
			if errors.Is(err, ErrImage) != (n > 3) || n <= 3 && err != nil {
				t.Errorf("%d %s: got %v, want an error above 3", n, what, err)
			}
			u.close()
			must.Do(t, to.Close())
		}
	}
}
