//go:build linux

package envd

import (
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestOpenLeased: a file that another process has leased is opened when that
// process is done with it.
func TestOpenLeased(t *testing.T) {
	name := filepath.Join(t.TempDir(), "leased")
	f, err := os.Create(name)
	must.Do(t, err)
	defer f.Close()
	opened := make(chan os.Signal, 1)
	signal.Notify(opened, unix.SIGIO)
	defer signal.Stop(opened)
	_, owner := unix.FcntlInt(f.Fd(), unix.F_SETOWN, os.Getpid())
	_, lease := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	if err := errors.Join(owner, lease); err != nil {
		t.Skipf("this machine gives no lease: %v", err)
	}
	done := make(chan error, 1)
	go func() {
		<-opened
		_, wrote := f.WriteString("new")
		_, released := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
		done <- errors.Join(wrote, released)
	}()
	got, err := openRegular(name)
	must.Do(t, err)
	defer got.Close()
	text := make([]byte, 8)
	if n, _ := got.Read(text); string(text[:n]) != "new" {
		t.Errorf("got %q, want %q", text[:n], "new")
	}
	if err := patience.Receive(t, "the end of the lease", done); err != nil {
		t.Error(err)
	}
}

// TestLeaseThatStays checks that an open waits for the end of a lease, but not for ever, and that it waits for
// nothing else.
func TestLeaseThatStays(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "leased")
	f, err := os.Create(name)
	must.Do(t, err)
	defer f.Close()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skipf("this machine gives no lease: %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		for path, want := range map[string]error{name: unix.EAGAIN, name + " gone": unix.ENOENT, filepath.Dir(name): unix.EISDIR} {
			began := time.Now()
			if opened, err := openPatiently(path, os.O_WRONLY|unix.O_NONBLOCK); !errors.Is(err, want) {
				t.Errorf("%s: got %v and error %v, want %v", path, opened, err, want)
			}
			took := time.Since(began)
			if waited := took > leasePatience && took < 2*leasePatience; waited != (path == name) || took > 0 && !waited {
				t.Errorf("%s: it took %v", path, took)
			}
		}
	})
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	must.Do(t, err)
}
