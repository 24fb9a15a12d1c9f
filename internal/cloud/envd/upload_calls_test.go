//go:build linux

package envd

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestEachCallOfAnUploadFails makes each system call of an upload fail. Either the upload fails with that
// error, or the file has the whole content, its owner and its metadata. In no case is anything left of
// it beside the file, and a file that did not exist is there only after a success.
func TestEachCallOfAnUploadFails(t *testing.T) {
	t.Parallel()
	d := serve(t)
	user := User{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
	if user.UID == 0 {
		user.UID, user.GID = 54321, 54322
	}
	metadata := map[string]string{"key": "value"}
	if probe, err := d.server.storeFile(filepath.Join(t.TempDir(), "a"), strings.NewReader("x"), &user, metadata); err != nil || probe == nil {
		metadata = nil // the filesystem of the temporary directory takes none
	}
	for name, tt := range map[string]struct {
		before string // content of the file; "" means that there is none
		path   string
		size   int
	}{
		"a new file": {"", "new", 10}, "in new directories": {"", "a/b/new", 10}, "a large one": {"", "new", block + 1}, "over a longer one": {"longer than ten", "old", 10}, "a large one over another": {"x", "old", 2*block + 7},
	} {
		for call, number := range map[string]uint32{
			"openat": unix.SYS_OPENAT, "fstat": unix.SYS_FSTAT, "fchown": unix.SYS_FCHOWN, "fsetxattr": unix.SYS_FSETXATTR, "fremovexattr": unix.SYS_FREMOVEXATTR, "linkat": unix.SYS_LINKAT,
			"ftruncate": unix.SYS_FTRUNCATE, "lseek": unix.SYS_LSEEK, "mkdirat": unix.SYS_MKDIRAT, "fchownat": unix.SYS_FCHOWNAT, "copy_file_range": unix.SYS_COPY_FILE_RANGE, "statx": unix.SYS_STATX,
		} {
			for n, more := 1, true; more; n++ {
				dir := t.TempDir()
				path, body := filepath.Join(dir, tt.path), strings.Repeat("b", tt.size)
				if tt.before != "" {
					put(t, path, tt.before)
					_ = unix.Setxattr(path, metadataPrefix+"old", []byte("x"), 0) // which the filesystem may not take
				}
				var err error
				more, err = calltest.FailNth(t, number, n, unix.EIO, func() error {
					_, err := d.server.storeFile(path, strings.NewReader(body), &user, metadata)
					return err
				})
				what := name + ": a failed " + call
				if err != nil && !errors.Is(err, unix.EIO) {
					t.Errorf("%s: got error %v", what, err)
				}
				if err == nil {
					wantUploaded(t, what, path, body, &user, metadata)
				} else if _, missing := os.Lstat(path); tt.before == "" && !errors.Is(missing, fs.ErrNotExist) {
					t.Errorf("%s: the file is there after the error %v", what, err)
				}
				if open := descriptors(t)[path]; open != 0 {
					t.Errorf("%s: the file is open %d times", what, open)
				}
				if entries, err := os.ReadDir(filepath.Dir(path)); err == nil && len(entries) > 1 {
					t.Errorf("%s: %v are left", what, entries)
				}
				must.Do(t, os.RemoveAll(dir))
			}
		}
	}
	if left, err := os.ReadDir(d.server.scratch); err != nil && !errors.Is(err, fs.ErrNotExist) || strings.Contains(entriesOf(left), ".upload-") {
		t.Errorf("in the scratch directory %s are left, error %v", entriesOf(left), err)
	}
}

// TestLengthOfAnOverwrittenFile checks that only a file that was longer is cut to its new length, and only after its new
// content was written.
func TestLengthOfAnOverwrittenFile(t *testing.T) {
	t.Parallel()
	d := serve(t)
	const body = "new text"
	for before, cut := range map[string]bool{"old": false, "old tex": false, "old text": false, "old text.": true} {
		for number, call := range map[uint32]string{unix.SYS_FTRUNCATE: "ftruncate", unix.SYS_WRITE: "write"} {
			path := d.home + "/file"
			must.Do(t, os.RemoveAll(path))
			put(t, path, before)
			failed, err := calltest.FailNth(t, number, 1, unix.EIO, func() error {
				_, err := d.server.storeFile(path, strings.NewReader(body), d.server.users.fallback, nil)
				return err
			})
			want, fails := before, true
			if number == unix.SYS_FTRUNCATE {
				want, fails = body+before[min(len(body), len(before)):], cut
			}
			if got := content(t, path); failed != fails || errors.Is(err, unix.EIO) != fails || got != want {
				t.Errorf("over %q, and %s fails: failed %v, error %v, and the file has %q, want %v and %q", before, call, failed, err, got, fails, want)
			}
		}
	}
}

func entriesOf(entries []os.DirEntry) (names string) {
	for _, e := range entries {
		names += e.Name() + " "
	}
	return names
}

// wantUploaded checks a file that was uploaded.
func wantUploaded(t *testing.T, what, path, body string, user *User, metadata map[string]string) {
	t.Helper()
	text, err := os.ReadFile(path)
	must.Do(t, err)
	var stat unix.Stat_t
	must.Do(t, unix.Lstat(path, &stat))
	if string(text) != body || stat.Uid != user.UID || stat.Gid != user.GID {
		t.Errorf("%s: got %d bytes of %d:%d, want %d of %d:%d", what, len(text), stat.Uid, stat.Gid, len(body), user.UID, user.GID)
	}
	for dir := filepath.Dir(path); filepath.Base(dir) == "a" || filepath.Base(dir) == "b"; dir = filepath.Dir(dir) {
		must.Do(t, unix.Lstat(dir, &stat))
		if stat.Uid != user.UID || stat.Gid != user.GID {
			t.Errorf("%s: the new directory %s belongs to %d:%d", what, filepath.Base(dir), stat.Uid, stat.Gid)
		}
	}
	info, err := os.Lstat(path)
	must.Do(t, err)
	if got := readMetadata(path, info); metadata != nil && !maps.Equal(got, metadata) {
		t.Errorf("%s: got the metadata %q, want %q", what, got, metadata)
	}
}
