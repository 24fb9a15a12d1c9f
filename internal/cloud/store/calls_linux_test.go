package store

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
)

// TestCreationFails makes, one at a time, the calls fail that lock, flush and rename the files of a
// new store. Open reports each failure, and the next Open succeeds. A database that could not be
// completed does not get its final name.
func TestCreationFails(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		call   string
		number uint32
		early  int // number of calls up to the renaming of the database
	}{
		{"flock", unix.SYS_FLOCK, 3},
		{"fdatasync", unix.SYS_FDATASYNC, 3},
		{"fsync", unix.SYS_FSYNC, 1},
		{"renameat", unix.SYS_RENAMEAT, 1},
	} {
		n := 0
		for failed := true; failed; {
			n++
			dir := filepath.Join(t.TempDir(), "state")
			var s *Store
			var err error
			failed, err = calltest.FailNth(t, tt.number, n, unix.EIO, func() (err error) {
				s, err = Open(t.Context(), dir)
				return err
			})
			if got := strings.Contains(fmt.Sprint(err), unix.EIO.Error()); got != failed {
				t.Errorf("%s %d failed, %v: got %v", tt.call, n, failed, err)
			}
			if _, err := os.Lstat(filepath.Join(dir, databaseFile)); (err == nil) != (n > tt.early) {
				t.Errorf("%s %d failed: got %v, want a database after call %d", tt.call, n, err, tt.early)
			}
			if s == nil {
				s = open(t, dir)
			}
			if err := s.Close(); err != nil {
				t.Errorf("%s %d failed: %v", tt.call, n, err)
			}
		}
		if n <= tt.early {
			t.Errorf("%s: got %d calls, want at least %d", tt.call, n-1, tt.early)
		}
	}
}
