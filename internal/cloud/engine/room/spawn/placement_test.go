//go:build linux

package spawn

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAsUser: only one thread becomes the user; it keeps its privileges, and is as
// before afterwards.
func TestAsUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for ever: a thread that could not be restored is of no use
		if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGUSR1), 0, 0, 0); err != nil {
			t.Error(err)
			return
		}
		before := threadStatus(t)
		err := asUser(54321, func() error {
			inside := threadStatus(t)
			if !strings.Contains(inside["Uid"], "54321") || inside["CapEff"] != before["CapEff"] {
				t.Errorf("it is %v", inside)
			}
			if main, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/status", os.Getpid())); err == nil && unix.Gettid() != os.Getpid() && strings.Contains(string(main), "54321") {
				t.Error("another thread has become the user, too")
			}
			return os.ErrInvalid
		})
		if !errors.Is(err, os.ErrInvalid) {
			t.Errorf("got %v", err)
		}
		if after := threadStatus(t); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("it was %v and is %v", before, after)
		}
	}()
	<-done
}

// threadStatus returns this thread's user, privileges and settings, as the kernel reports them.
func threadStatus(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		t.Error(err)
	}
	status := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); slices.Contains([]string{"Uid", "Gid", "CapEff", "CapPrm", "CapInh"}, name) {
			status[name] = strings.TrimSpace(value)
		}
	}
	dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil {
		t.Error(err)
	}
	atParentsEnd, err := parentDeathSignal()
	if err != nil {
		t.Error(err)
	}
	status["settings"] = fmt.Sprint(dumpable, atParentsEnd)
	return status
}
