//go:build linux

package layer

import (
	"archive/tar"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// TestOwnersByTheirEdges checks the ids of an entry and its mode: an id that the layer does not have
// becomes nobody's, without the right to act as that user or group.
func TestOwnersByTheirEdges(t *testing.T) {
	t.Parallel()
	type owner struct {
		UID, GID int
		Mode     uint32
	}
	for _, tt := range []struct {
		ids, uid, gid int
		want          owner
	}{
		{10, 0, 0, owner{0, 0, 0o6755}},
		{10, 9, 9, owner{9, 9, 0o6755}},
		{10, 10, 9, owner{nobody, 9, 0o2755}},
		{10, 9, 10, owner{9, nobody, 0o4755}},
		{10, -1, 0, owner{nobody, 0, 0o2755}},
		{10, 0, -1, owner{0, nobody, 0o4755}},
		{1, 10, 10, owner{0, 0, 0o6755}},
		{1, -1, -1, owner{0, 0, 0o6755}},
	} {
		u := &untar{o: TarOptions{IDs: tt.ids}}
		var got owner
		got.UID, got.GID, got.Mode = u.owner(&tar.Header{Uid: tt.uid, Gid: tt.gid, Mode: 0o106755})
		if got != tt.want {
			t.Errorf("%d:%d of %d ids: got %+v, want %+v", tt.uid, tt.gid, tt.ids, got, tt.want)
		}
	}
}

// TestTimesOfEntries checks that a file has the whole time of its entry, also before 1970.
func TestTimesOfEntries(t *testing.T) {
	t.Parallel()
	for _, at := range []time.Time{time.Unix(5, 6), time.Unix(-5, 999_999_999)} {
		of := unix.NsecToTimespec(at.UnixNano())
		if diff := cmp.Diff([]unix.Timespec{of, of}, tarTimes(&tar.Header{ModTime: at})); diff != "" {
			t.Errorf("%v (-want +got):\n%s", at, diff)
		}
	}
}
