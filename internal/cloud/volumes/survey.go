package volumes

import (
	"context"
	"os"
	"path/filepath"

	"github.com/e2bctl/e2bctl/internal/cloud/store"
)

// imageName is the name of a file in the directory of a volume with a size. The file contains the
// volume's file system.
const imageName = "image"

// Space is the disk use of the volumes in a state directory.
type Space struct {
	Count int
	Sized int   // number of volumes with a size, included in Count
	Bytes int64 // on the disk, as far as this user can read the directories
}

// Survey returns the disk use of the volumes in a state directory. A process may have the
// directory open.
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
