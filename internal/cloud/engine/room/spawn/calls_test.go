//go:build linux

package spawn

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestEachCallOfAsUserFails checks that an error before the function prevents it, and that an error
// after it means that the thread is not as it was.
//
//nolint:paralleltest // whether it is dumpable is a setting of the whole process
func TestEachCallOfAsUserFails(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	defer func() { must.Do(t, unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)) }()
	for _, tt := range []struct {
		call   string
		number uint32
		n      int
		called bool
		away   bool
	}{
		{"capget", unix.SYS_CAPGET, 1, false, false},
		{"the prctl that asks for dumpable", unix.SYS_PRCTL, 2, false, false},
		{"the prctl that asks for the signal", unix.SYS_PRCTL, 3, false, false},
		{"the setresuid to the user", unix.SYS_SETRESUID, 1, false, false},
		{"the capset of the user", unix.SYS_CAPSET, 1, false, false},
		{"the setresuid back", unix.SYS_SETRESUID, 2, true, true},
		{"the capset back", unix.SYS_CAPSET, 2, true, true},
		{"the prctl that sets dumpable", unix.SYS_PRCTL, 4, true, true},
		{"the prctl that sets the signal", unix.SYS_PRCTL, 5, true, true},
	} {
		called := false
		must.Do(t, unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0))
		failed, err := calltest.FailNth(t, tt.number, tt.n, unix.EIO, func() error {
			if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGUSR1), 0, 0, 0); err != nil {
				return err
			}
			return asUser(54321, func() error { called = true; return nil })
		})
		if !failed || !errors.Is(err, unix.EIO) || errors.Is(err, ErrAway) != tt.away || called != tt.called {
			t.Errorf("%s failed, %v: got %v, and called: %v, want an error, away: %v, called: %v", tt.call, failed, err, called, tt.away, tt.called)
		}
	}
}

// TestOwnUserIsNotChanged checks that a child without an owner of its own is started without a change
// of the thread's user, which an ordinary user may not make.
func TestOwnUserIsNotChanged(t *testing.T) {
	t.Parallel()
	changed, err := calltest.FailNth(t, unix.SYS_SETRESUID, 1, unix.EPERM, func() error {
		cmd := exec.Command("/proc/self/exe", "-test.run", "^$")
		return errors.Join(Placement{}.clone(cmd), cmd.Wait())
	})
	if changed || err != nil {
		t.Errorf("the user was changed: %v, and got %v", changed, err)
	}
}

// TestLendProcesses checks the limit while it is lent and afterwards, and that no child starts
// without it.
//
//nolint:paralleltest // the limit is that of the whole process
func TestLendProcesses(t *testing.T) {
	var own unix.Rlimit
	must.Do(t, unix.Getrlimit(unix.RLIMIT_NPROC, &own))
	for _, limit := range []uint64{own.Cur - 1, own.Cur} {
		restore, err := lendProcesses(limit)
		must.Do(t, err)
		var lent, after unix.Rlimit
		must.Do(t, unix.Getrlimit(unix.RLIMIT_NPROC, &lent))
		restore()
		must.Do(t, unix.Getrlimit(unix.RLIMIT_NPROC, &after))
		if lent.Cur != limit || lent.Max != own.Max || after != own {
			t.Errorf("a limit of %d: it was %+v, and then %+v, and before %+v", limit, lent, after, own)
		}
	}
	for call, number := range map[string]uint32{"getrlimit": unix.SYS_GETRLIMIT, "prlimit64": unix.SYS_PRLIMIT64} {
		cmd := exec.Command("/proc/self/exe", "-test.run", "^$")
		failed, err := calltest.FailNth(t, number, 1, unix.EIO, func() error {
			return Placement{Processes: own.Cur - 1}.clone(cmd)
		})
		if !failed || !errors.Is(err, unix.EIO) || cmd.Process != nil {
			t.Errorf("%s failed, %v: got %v and the process %v, want an error and none", call, failed, err, cmd.Process)
		}
	}
}
