package treecopy

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestOwners checks the owners and times of copies and of the directories that are created for them. Only root can change
// owners; for others, the copy fails.
func TestOwners(t *testing.T) {
	t.Parallel()
	archive, parents, given := Owner{1001, 1002}, Owner{1003, 1004}, Owner{1005, 1006}
	for name, tt := range map[string]struct {
		owner                   *Owner
		parent, within, content Owner
	}{
		"of the archive": {nil, parents, parents, archive},
		"given":          {&given, parents, given, given},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			w := tar.NewWriter(&b)
			for _, h := range []tar.Header{
				{Name: "dir/", Typeflag: tar.TypeDir, Mode: 0o750}, {Name: "dir/file", Typeflag: tar.TypeReg, Mode: 0o640},
				{Name: "dir/link", Typeflag: tar.TypeSymlink, Linkname: "file"}, {Name: "in/file", Typeflag: tar.TypeReg, Mode: 0o640},
			} {
				h.Uid, h.Gid, h.ModTime = int(archive.UID), int(archive.GID), at
				must.Do(t, w.WriteHeader(&h))
			}
			must.Do(t, w.Close())
			dir := t.TempDir()
			err := Place(&b, Placement{Source: ".", Target: dir + "/up/to", Owner: tt.owner, Parents: parents})
			if os.Geteuid() != 0 {
				must.Is(t, err, unix.EPERM)
				return
			}
			must.Do(t, err)
			want := map[string]Owner{
				"up": tt.parent, "up/to": tt.parent, "up/to/in": tt.within,
				"up/to/dir": tt.content, "up/to/dir/file": tt.content, "up/to/dir/link": tt.content, "up/to/in/file": tt.content,
			}
			got := map[string]Owner{}
			for name := range want {
				var stat unix.Stat_t
				must.Do(t, unix.Lstat(filepath.Join(dir, name), &stat))
				got[name] = Owner{stat.Uid, stat.Gid}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, name := range []string{"dir", "dir/file"} {
				info, err := os.Stat(filepath.Join(dir, "up/to", name))
				must.Do(t, err)
				if !info.ModTime().Equal(at) {
					t.Errorf("%s: got the time %v, want %v", name, info.ModTime(), at)
				}
			}
		})
	}
}

// TestMakeDirs checks that only missing directories are created, and that a file or an error on the
// way is reported.
func TestMakeDirs(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		dir  string
		made bool
		want string // part of the error
	}{
		"there":        {"dir", false, ""},
		"missing":      {"dir/new", true, ""},
		"several":      {"dir/new/deep", true, ""},
		"a file":       {"file", false, "file is no directory"},
		"below a file": {"file/new", false, "file/new is no directory"},
		"a long name":  {"dir/" + strings.Repeat("x", 256), false, "file name too long"},
		"a dead link":  {"dead", false, "file exists"},
		"behind it":    {"dead/new", false, "file exists"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			must.Do(t, errors.Join(os.Mkdir(root+"/dir", 0o755), os.WriteFile(root+"/file", nil, 0o644), os.Symlink("nothing", root+"/dead")))
			made, err := MakeDirs(root+"/"+tt.dir, me)
			if made != tt.made || (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v and error %v, want %v and %q", made, err, tt.made, tt.want)
			}
			info, err := os.Stat(root + "/" + tt.dir)
			if isDir := err == nil && info.IsDir(); isDir != (tt.want == "") {
				t.Errorf("a directory is there afterwards: %v, want %v", isDir, tt.want == "")
			}
		})
	}
}
