//go:build linux

package layer

import (
	"archive/tar"
	"bytes"
	"os"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestUntarBytesOfTheWhole checks that the bound is on the bytes of all files of a layer
// together, including those that a later entry replaces.
func TestUntarBytesOfTheWhole(t *testing.T) {
	t.Parallel()
	for what, names := range map[string][2]string{"two files": {"a", "b"}, "a file and what replaces it": {"a", "a"}} {
		for size := int64(2); size <= 4; size++ {
			var text bytes.Buffer
			w := tar.NewWriter(&text)
			for i, length := range []int64{5, size} {
				must.Do(t, w.WriteHeader(&tar.Header{Name: names[i], Typeflag: tar.TypeReg, Mode: 0o600, Size: length}))
				_, err := w.Write(make([]byte, length))
				must.Do(t, err)
			}
			must.Do(t, w.Close())
			to, err := os.Open(t.TempDir())
			must.Do(t, err)
			u := &untar{o: TarOptions{To: to, IDs: 1}, buffer: make([]byte, 1<<20), most: 2, left: 8}
			must.Do(t, u.openRoot())
			if err := u.entries(tar.NewReader(&text)); (err != nil) != (5+size > 8) {
				t.Errorf("%s of %d bytes: got %v, want an error above 8", what, 5+size, err)
			}
			u.close()
			_ = to.Close()
		}
	}
}
