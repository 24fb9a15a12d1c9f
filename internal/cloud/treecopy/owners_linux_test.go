package treecopy

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
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

// TestChown checks that chown changes a user and a group, and that it leaves a file alone that has both already: a change
// would take the special bits of the mode and the capabilities from the file.
func TestChown(t *testing.T) {
	t.Parallel()
	other := Owner{1007, 1008}
	for name, owner := range map[string]Owner{"neither": me, "the user": {other.UID, me.GID}, "the group": {me.UID, other.GID}, "both": other} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := t.TempDir() + "/file"
			must.Do(t, errors.Join(os.WriteFile(to, nil, 0o600), unix.Chmod(to, 0o4755)))
			err := chown(to, owner)
			if owner != me && os.Geteuid() != 0 {
				must.Is(t, err, unix.EPERM)
				return
			}
			must.Do(t, err)
			var stat unix.Stat_t
			must.Do(t, unix.Lstat(to, &stat))
			if got := (Owner{stat.Uid, stat.Gid}); got != owner {
				t.Errorf("got the owner %v, want %v", got, owner)
			}
			if kept := stat.Mode&unix.S_ISUID != 0; kept != (owner == me) {
				t.Errorf("got the mode %o, want that it keeps its special bit: %v", stat.Mode, owner == me)
			}
		})
	}
	must.Is(t, chown(t.TempDir()+"/missing", Owner{}), unix.ENOENT)
}

// TestLinksInPlaceOfDirectories checks that a directory of an archive does not change the one to which a link leads, and
// that a link that leads nowhere is an error.
func TestLinksInPlaceOfDirectories(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.Do(t, errors.Join(os.WriteFile(dir+"/file", nil, 0o600), os.Symlink("nothing", dir+"/dead"), os.Mkdir(dir+"/sub", 0o700), os.Symlink("sub", dir+"/alias")))
	place := func(name string) error {
		return Place(packed(t, "a/", "", "a/"+name, ""), Placement{Source: "a", Target: dir, Owner: &me, Parents: me})
	}
	must.Is(t, place("dead/"), unix.EEXIST)
	must.Do(t, place("alias/"))
	info, err := os.Stat(dir + "/sub")
	must.Do(t, err)
	if info.Mode() != fs.ModeDir|0o700 || info.ModTime().Equal(at) {
		t.Errorf("got the mode %v and the time %v, want them as before", info.Mode(), info.ModTime())
	}
	for name, want := range map[string]bool{"dead": true, "alias": true, "sub": false, "file": false, "missing": false} {
		if got := isLink(dir + "/" + name); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}
