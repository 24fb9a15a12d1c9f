//go:build linux

package layer_test

import (
	"archive/tar"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/layer"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestUntarOwners checks the owner and group of each type of file, root or another, above files that
// belong to others.
func TestUntarOwners(t *testing.T) {
	t.Parallel()
	if ids() == 1 {
		t.Skip("this user cannot give files to others")
	}
	var below, above []entry
	var want []string
	for _, uid := range []int{0, 7} {
		for _, gid := range []int{0, 8} {
			for _, e := range []entry{dir("dir", 0o755), of(tar.TypeFifo, "fifo"), file("file", ""), symlink("link", "x")} {
				e.h.Name += fmt.Sprintf("-%d-%d", uid, gid)
				want = append(want, fmt.Sprintf("%s %d:%d", e.h.Name, uid, gid))
				below = append(below, e.owned(3, 4, 0o755))
				above = append(above, e.owned(uid, gid, 0o755))
			}
		}
	}
	in := closed(t)
	dirs, err := stack(t, in, archive(t, below...), archive(t, above...))
	must.Do(t, err)
	var got []string
	for _, line := range shown(t, in, dirs)[1:] {
		f := strings.Fields(line)
		got = append(got, f[0]+" "+f[2])
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestCopyAttributes checks that a directory gets the mode, the times, the access control lists and the
// user attributes of another, but not the attributes of an overlay itself.
func TestCopyAttributes(t *testing.T) {
	t.Parallel()
	a, b := t.TempDir(), t.TempDir()
	from, to := open(t, a), open(t, b)
	list := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range [][2]uint16{{1, 7}, {4, 5}, {32, 0}} { // owner, group and others, with their rights
		list = binary.LittleEndian.AppendUint16(list, e[0])
		list = binary.LittleEndian.AppendUint16(list, e[1])
		list = binary.LittleEndian.AppendUint32(list, 1<<32-1)
	}
	all := map[string]string{"system.posix_acl_default": string(list), "user.a": "1", "user.overlay.overlay.x": "2", "user.overlay.opaque": "y"}
	for name, value := range all {
		err := unix.Fsetxattr(int(from.Fd()), name, []byte(value), 0)
		if errors.Is(err, unix.ENOTSUP) {
			t.Skipf("the file system of the test has no %s", name)
		}
		must.Do(t, err)
	}
	must.Do(t, unix.Chmod(a, 0o2751))
	must.Do(t, unix.UtimesNano(a, []unix.Timespec{{Sec: 11, Nsec: 12}, {Sec: 13, Nsec: 14}}))
	must.Do(t, layer.CopyAttributes(from, to))
	var stat unix.Stat_t
	must.Do(t, unix.Stat(b, &stat))
	if got := [5]int64{int64(stat.Mode & 0o7777), stat.Atim.Sec, stat.Atim.Nsec, stat.Mtim.Sec, stat.Mtim.Nsec}; got != [5]int64{0o2751, 11, 12, 13, 14} {
		t.Errorf("got mode and times %o, want those of the other", got)
	}
	delete(all, "user.overlay.opaque")
	got := map[string]string{}
	names := make([]byte, 1000)
	n, err := unix.Listxattr(b, names)
	must.Do(t, err)
	for name := range strings.SplitSeq(strings.TrimRight(string(names[:n]), "\x00"), "\x00") {
		value := make([]byte, 1000)
		n, err := unix.Getxattr(filepath.Clean(b), name, value)
		must.Do(t, err)
		got[name] = string(value[:n])
	}
	if diff := cmp.Diff(all, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
