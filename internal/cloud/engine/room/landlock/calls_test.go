//go:build linux

package landlock

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestCheckedByVersion checks what is refused from which version of Landlock on.
func TestCheckedByVersion(t *testing.T) {
	t.Parallel()
	added := map[int]unix.LandlockRulesetAttr{
		1: {Handled_access_fs: firstRights},
		2: {Handled_access_fs: unix.LANDLOCK_ACCESS_FS_REFER},
		3: {Handled_access_fs: unix.LANDLOCK_ACCESS_FS_TRUNCATE},
		4: {Handled_access_net: unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP},
		5: {Handled_access_fs: unix.LANDLOCK_ACCESS_FS_IOCTL_DEV},
		6: {Scoped: unix.LANDLOCK_SCOPE_SIGNAL | unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET},
	}
	var want unix.LandlockRulesetAttr
	for version := 1; version <= 8; version++ {
		want.Handled_access_fs |= added[version].Handled_access_fs
		want.Handled_access_net |= added[version].Handled_access_net
		want.Scoped |= added[version].Scoped
		if got := checked(version); got != want {
			t.Errorf("version %d: got %+v, want %+v", version, got, want)
		}
	}
}

// TestOldVersions checks the notes about old versions of Landlock, on each side of every version that is
// named.
func TestOldVersions(t *testing.T) {
	t.Parallel()
	for version := 1; version <= 8; version++ {
		var want []string
		if version < 6 {
			want = append(want, "signals")
		}
		if version < 3 {
			want = append(want, "truncate")
		}
		notes := leavesOpen(version)
		if len(notes) != len(want) {
			t.Errorf("version %d: got the notes %q, want them about %q", version, notes, want)
			continue
		}
		for i, note := range notes {
			if about := fmt.Sprintf("version %d does not stop %s:", version, want[i]); !strings.Contains(note, about) {
				t.Errorf("version %d: got the note %q, want %q", version, note, about)
			}
		}
		if err := keepsSignals(version); errors.Is(err, ErrSignals) != (version < 6) || (err != nil) != (version < 6) {
			t.Errorf("version %d: got %v, want an error before version 6", version, err)
		}
	}
}

// TestEachCallFails makes each call of Apply fail in turn. A process whose access could not be
// restricted as a whole must not go on, and no descriptor stays open. It is not parallel, because it
// counts the descriptors of the process.
func TestEachCallFails(t *testing.T) { //nolint:paralleltest // see above
	if _, err := version(); err != nil {
		t.Skip(err)
	}
	access := Access{Program: programOf(t, "", false), Own: t.TempDir(), Execute: []string{"/usr"}, Read: []string{"/etc"}, Devices: []string{"/dev/null"}}
	for call, number := range map[string]uint32{
		"create_ruleset": unix.SYS_LANDLOCK_CREATE_RULESET, "openat": unix.SYS_OPENAT, "fstat": unix.SYS_FSTAT,
		"add_rule": unix.SYS_LANDLOCK_ADD_RULE, "restrict_self": unix.SYS_LANDLOCK_RESTRICT_SELF,
	} {
		for n, failed := 1, true; failed; n++ {
			before := descriptors(t)
			var err error
			failed, err = calltest.FailNth(t, number, n, unix.EIO, func() error { return Apply(access) })
			if errors.Is(err, unix.EIO) != failed || n == 1 && !failed {
				t.Errorf("%s, call %d failed, %v: got %v", call, n, failed, err)
			}
			if got := descriptors(t); got != before {
				t.Errorf("%s, call %d failed, %v: got %d descriptors, want %d", call, n, failed, got, before)
			}
		}
	}
}

// TestVersionUnknown checks that an error about the version is not taken for an old version.
func TestVersionUnknown(t *testing.T) {
	t.Parallel()
	if _, err := version(); err != nil {
		t.Skip(err)
	}
	failed, err := calltest.FailNth(t, unix.SYS_LANDLOCK_CREATE_RULESET, 1, unix.EIO, KeepsSignals)
	if !failed || !errors.Is(err, unix.EIO) || errors.Is(err, ErrSignals) {
		t.Errorf("failed %v: got %v, want only the error of the call", failed, err)
	}
	failed, err = calltest.FailNth(t, unix.SYS_LANDLOCK_CREATE_RULESET, 1, unix.EIO, func() error {
		if notes := LeavesOpen(); notes != nil {
			return fmt.Errorf("got the notes %q, want none", notes)
		}
		return nil
	})
	if !failed || err != nil {
		t.Errorf("failed %v: %v", failed, err)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	must.Do(t, err)
	return len(all)
}
