package setupdir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestEachFailedCall makes each system call fail with which Make creates directories and sets modes. Make then returns the
// error, and leaves nothing behind.
func TestEachFailedCall(t *testing.T) { //nolint:paralleltest // it changes the working directory, for the case that a name is empty
	t.Chdir(t.TempDir())
	for name, tt := range map[string]struct {
		number uint32
		calls  int
		filled bool // fill has been called
	}{"make a directory": {unix.SYS_MKDIRAT, 3, false}, "set a mode": {unix.SYS_FCHMODAT, 2, true}} {
		for n := 1; n <= tt.calls+1; n++ {
			cache := t.TempDir()
			dir, filled := filepath.Join(cache, "1"), false
			failed, err := calltest.FailNth(t, tt.number, n, unix.EIO, func() error {
				return marker.Make(dir, &strings.Builder{}, works, func(made, scratch string) error {
					filled = true
					return fill(made, scratch)
				})
			})
			if failed != (n <= tt.calls) || failed != errors.Is(err, unix.EIO) || filled != (tt.filled || !failed) {
				t.Errorf("%s, call %d, failed: %v; got error %v, filled %v, want an error for each of %d", name, n, failed, err, filled, tt.calls)
			}
			if failed {
				checkLeft(t, cache)
			} else {
				must.Do(t, errors.Join(err, works(dir)))
			}
		}
	}
	if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
		t.Errorf("got %v and error %v in the working directory, want nothing", left, err)
	}
}
