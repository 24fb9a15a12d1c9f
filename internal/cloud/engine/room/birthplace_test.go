//go:build linux

package room

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// TestBirthplace: the processes of a sandbox are in its groups, and no thread of
// the room is, because removing the groups kills what is in them.
func TestBirthplace(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	s := newSandbox(t, r, engine.SandboxOptions{ID: "born"})
	if s.group == nil || len(s.group.Dirs) == 0 {
		if os.Getenv("CI") == "true" && os.Geteuid() == 0 {
			t.Fatal("root has no control group for a sandbox")
		}
		t.Skip("no control group that this user may make")
	}
	pid, err := pidOf(s.pidfd)
	if err != nil {
		t.Fatal(err)
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", r.room.cmd.Process.Pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("threads of the room: %q, %v", threads, err)
	}
	for _, h := range s.group.Dirs {
		name := "cgroup.threads"
		if h.Version == 1 {
			name = "tasks"
		}
		text, err := os.ReadFile(filepath.Join(h.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		members := strings.Fields(string(text))
		if !slices.Contains(members, strconv.Itoa(pid)) {
			t.Errorf("%s has %v, without the first process, %d", h.Dir, members, pid)
		}
		for _, thread := range threads {
			if slices.Contains(members, filepath.Base(thread)) {
				t.Errorf("%s has the room's thread %s", h.Dir, filepath.Base(thread))
			}
		}
	}
}

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

// threadStatus returns what the kernel says about this thread's user, privileges
// and settings.
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
