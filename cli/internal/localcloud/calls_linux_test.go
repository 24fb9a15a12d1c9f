package localcloud

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/fdtest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestLocksThatFail checks that a lock that can neither be taken nor be asked for is an error, and stays not open.
func TestLocksThatFail(t *testing.T) {
	t.Parallel()
	place := Place{dir: t.TempDir()}
	for name, do := range map[string]func() error{
		"claim": func() error {
			release, err := place.Claim()
			if err == nil {
				release()
			}
			return err
		},
		"read": func() error { return second(place.Read()) },
	} {
		errs := 0
		for n, failed := 1, true; failed; n++ {
			var err error
			failed, err = calltest.FailNth(t, unix.SYS_FCNTL, n, unix.EIO, do)
			if err != nil && !errors.Is(err, ErrNone) {
				errs++
				must.Is(t, err, unix.EIO)
			}
			if open := fdtest.Open(t, place.dir); len(open) > 0 {
				t.Errorf("%s %d: %q are open, want none", name, n, open)
			}
		}
		if errs == 0 {
			t.Errorf("%s: no call that fails was an error", name)
		}
	}
}

// TestHeldByAnother checks that both answers of the system about a lock that another process holds mean this.
func TestHeldByAnother(t *testing.T) {
	t.Parallel()
	for _, as := range []unix.Errno{unix.EAGAIN, unix.EACCES} {
		file, err := os.Create(filepath.Join(t.TempDir(), "lock"))
		must.Do(t, err)
		_, err = calltest.FailNth(t, unix.SYS_FCNTL, 1, as, func() error {
			taken, err := lockFile(file)
			if taken {
				t.Errorf("%v: the lock was taken, want it to be another's", as)
			}
			return err
		})
		must.Do(t, err)
		must.Do(t, file.Close())
	}
}

// TestWholeFile checks that a file has its former content, and that no temporary file is left, if its replacement fails.
func TestWholeFile(t *testing.T) {
	t.Parallel()
	for name, number := range map[string]uint32{"openat": unix.SYS_OPENAT, "renameat": unix.SYS_RENAMEAT} {
		path := filepath.Join(t.TempDir(), "file")
		must.Do(t, os.WriteFile(path, []byte("former"), 0o600))
		failed, err := calltest.FailNth(t, number, 1, unix.EIO, func() error { return writeWhole(path, []byte("new")) })
		if must.Is(t, err, unix.EIO); !failed {
			t.Errorf("%s: no call failed", name)
		}
		text, err := os.ReadFile(path)
		entries, listErr := os.ReadDir(filepath.Dir(path))
		if must.Do(t, err); string(text) != "former" || listErr != nil || len(entries) != 1 {
			t.Errorf("%s: got %q and the files %v, %v, want the former content alone", name, text, entries, listErr)
		}
	}
}

// TestPlaceThatCannotBeMade checks that no place is returned for a cloud beside another one unless its directory is there.
func TestPlaceThatCannotBeMade(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	t.Setenv("TMPDIR", t.TempDir())
	place, err := Find()
	must.Do(t, err)
	startOther(t, place, "LOCALCLOUD_TEST_PUBLISH=1")
	errs := 0
	for n, failed := 1, true; failed; n++ {
		var got Place
		failed, err = calltest.FailNth(t, unix.SYS_MKDIRAT, n, unix.EIO, func() (err error) {
			got, err = FindFree(t.Context(), "/state")
			return err
		})
		if err != nil {
			errs++
			must.Is(t, err, unix.EIO)
			continue
		}
		if got != place.beside("/state") {
			t.Errorf("call %d: got %v, want the place beside", n, got)
		}
		if err := os.Remove(got.dir); err != nil {
			t.Errorf("call %d: got %v, want the directory of the place to be there", n, err)
		}
	}
	if errs == 0 {
		t.Error("no call that fails was an error")
	}
}

// TestCloudThatCannotBeAsked checks that a cloud that no signal reaches is an error at once, and that a start without a
// pipe or a log starts nothing.
func TestCloudThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	place := Place{dir: t.TempDir()}
	startOther(t, place)
	must.Do(t, second(os.FindProcess(os.Getpid()))) // it first tries what the system supports
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // so that End does not wait in vain
	failed, err := calltest.FailNth(t, unix.SYS_PIDFD_SEND_SIGNAL, 1, unix.EPERM, func() error {
		found, err := place.End(ctx)
		if !found {
			t.Error("got no cloud, want one that cannot be asked")
		}
		return err
	})
	if failed { // otherwise the system is too old
		must.Is(t, err, unix.EPERM)
	}
	for name, number := range map[string]uint32{"log": unix.SYS_OPENAT, "pipe": unix.SYS_PIPE2} {
		none := Place{dir: t.TempDir()}
		failed, err := calltest.FailNth(t, number, 1, unix.EMFILE, func() error { return second(none.startBackground(t.Context(), Settings{})) })
		if must.Is(t, err, unix.EMFILE); !failed {
			t.Errorf("%s: no call failed", name)
		}
		if open := fdtest.Open(t, none.dir); len(open) > 0 {
			t.Errorf("%s: %q are open, want none", name, open)
		}
	}
}
