package volumes

import (
	"context"
	"os"
	"path/filepath"

	"github.com/e2bctl/e2bctl/internal/cloud/store"
)

// imageName is the file with the file system of a volume with a size, in the volume's
// directory.
const imageName = "image"

// Space is the disk use of the volumes of a state directory.
type Space struct {
	Count int
	Sized int   // volumes with a size, also in Count
	Bytes int64 // on the disk, as far as this user can look into them
}

// Survey returns the disk use of the volumes of a state directory, whether or not a
// process has it open.
func Survey(ctx context.Context, dir string) (s Space, err error) {
	all, err := store.Survey(ctx, dir, store.Volumes)
	for _, v := range all {
		s.Count++
		s.Bytes += v.Bytes
		if _, err := os.Lstat(filepath.Join(v.Dir, imageName)); err == nil {
			s.Sized++
		}
	}
	return s, err
}
