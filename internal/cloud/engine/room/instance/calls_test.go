//go:build linux

package instance

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

// TestEachCallOfLockFails makes each call of Lock fail in turn. Nothing of the lock may be left, and
// no descriptor. It is not parallel, because it counts the descriptors of the process.
func TestEachCallOfLockFails(t *testing.T) { //nolint:paralleltest // see above
	for call, number := range map[string]uint32{"openat": unix.SYS_OPENAT, "write": unix.SYS_WRITE, "flock": unix.SYS_FLOCK, "renameat": unix.SYS_RENAMEAT} {
		for n, failed := 1, true; failed; n++ {
			dir := t.TempDir()
			before := names(t, "/proc/self/fd")
			var err error
			failed, err = calltest.FailNth(t, number, n, unix.EIO, func() error {
				f, err := Lock(Spec{Dir: dir})
				if err == nil {
					err = f.Close()
				}
				return err
			})
			if errors.Is(err, unix.EIO) != failed || n == 1 && !failed {
				t.Errorf("%s, call %d failed, %v: got %v", call, n, failed, err)
			}
			if after := names(t, "/proc/self/fd"); len(after) > len(before) {
				t.Errorf("%s, call %d failed: got the descriptors %q, before it %q", call, n, after, before)
			}
			if left := names(t, dir); failed && len(left) > 0 {
				t.Errorf("%s, call %d failed: %q is left", call, n, left)
			}
		}
	}
}

// TestCleanRemovesTheLockLast makes each removal of Clean fail in turn. As long as anything of the
// instance is left, its lock is left, so that the instance is recognised as stale.
func TestCleanRemovesTheLockLast(t *testing.T) {
	t.Parallel()
	for n, failed := 1, true; failed; n++ {
		dir := filepath.Join(t.TempDir(), "instance")
		for _, name := range []string{"a", "m", "z"} {
			must.Do(t, os.MkdirAll(filepath.Join(dir, name, "in"), 0o700))
		}
		f, err := Lock(Spec{Dir: dir})
		must.Do(t, err)
		must.Do(t, f.Close())
		failed, err = calltest.FailNth(t, unix.SYS_UNLINKAT, n, unix.EIO, func() error {
			return Spec{Dir: dir, Roots: filepath.Join(dir, "roots")}.Clean(t.Context())
		})
		_, gone := os.Lstat(dir)
		if !failed && (err != nil || !errors.Is(gone, os.ErrNotExist)) {
			t.Errorf("no removal failed: got %v, and the directory: %v", err, gone)
		}
		if gone != nil {
			continue
		}
		_, lock := os.Lstat(filepath.Join(dir, lockName))
		if left := names(t, dir); lock != nil && len(left) > 0 {
			t.Errorf("removal %d failed with %v: %q is left without a lock", n, err, left)
		}
	}
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must.Do(t, err)
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// TestCheckGroup checks that only a path of a control group, or of nothing, is taken for a group.
func TestCheckGroup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	for path, want := range map[string]string{
		filepath.Join(dir, "gone"): "", dir: "not a control group", "/proc/self": "not a control group",
		filepath.Join(dir, "file", "below"): "file system of", "a\x00b": "file system of",
	} {
		if err := checkGroup(path); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", path, err, want)
		}
	}
	must.Do(t, checkGroup(groupIn(t, "e2bctl-check-"+filepath.Base(dir))))
}
