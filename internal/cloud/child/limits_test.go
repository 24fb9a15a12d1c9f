//go:build linux

package child

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/fdtest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// waiting returns a command that ends when the returned function is called.
func waiting(t *testing.T) (cmd *exec.Cmd, end func()) {
	t.Helper()
	r, w, err := os.Pipe()
	must.Do(t, err)
	t.Cleanup(func() { r.Close(); w.Close() })
	return &exec.Cmd{Path: "/bin/sh", Args: []string{"sh", "-c", "read line"}, Stdin: r}, func() { w.Close() }
}

// atRest checks that no child is in the table, and that nobody holds its lock.
func atRest(t *testing.T) {
	t.Helper()
	if !started.mu.TryLock() {
		t.Fatal("got a table that is locked, want it unlocked")
	}
	defer started.mu.Unlock()
	if len(started.processes) > 0 {
		t.Errorf("got children %v in the table, want none", started.processes)
	}
}

// TestStartLeavesRoom checks that a child may have fewer processes than this process, and that without
// a limit it has none either.
func TestStartLeavesRoom(t *testing.T) { //nolint:paralleltest // it changes a limit of this process
	limitOfChild := func() (l unix.Rlimit) {
		cmd, end := waiting(t)
		must.Do(t, Start(cmd))
		pid := cmd.Process.Pid
		must.Do(t, unix.Prlimit(pid, unix.RLIMIT_NPROC, nil, &l))
		if open := fdtest.Open(t, "/proc/"+strconv.Itoa(pid)); len(open) > 0 {
			t.Errorf("left open: %q", open)
		}
		end()
		_ = Wait(cmd)
		atRest(t)
		return l
	}
	var own unix.Rlimit
	must.Do(t, unix.Getrlimit(unix.RLIMIT_NPROC, &own))
	if own.Max == unix.RLIM_INFINITY {
		if got := limitOfChild(); got != own {
			t.Errorf("without a limit: got %+v, want %+v", got, own)
		}
		own.Max = 1 << 20 // it is not raised again, but is more than the tests need
	}
	own.Cur = own.Max
	must.Do(t, unix.Setrlimit(unix.RLIMIT_NPROC, &own))
	most := own.Max - min(32, own.Max/4)
	if got, want := limitOfChild(), (unix.Rlimit{Cur: most, Max: most}); got != want {
		t.Errorf("below %+v: got %+v, want %+v", own, got, want)
	}
}

// TestStartFails checks that nothing is left of a command that cannot start, alone or as a group.
func TestStartFails(t *testing.T) { //nolint:paralleltest // it looks at the table of all children
	must.Is(t, Start(&exec.Cmd{Path: "/nonexistent"}), os.ErrNotExist)
	atRest(t)
	g, err := StartGroup(&exec.Cmd{Path: "/nonexistent"})
	must.Is(t, err, os.ErrNotExist)
	if g != nil {
		t.Errorf("got %+v, want no group", g)
	}
	atRest(t)
}

// TestReapOne checks that only children that were not started here are reaped, and only after they
// have ended.
func TestReapOne(t *testing.T) { //nolint:paralleltest // it reaps children of this process
	reap := func(name string, want bool) {
		t.Helper()
		if got, err := started.reapOne(); got != want || err != nil {
			t.Errorf("%s: got %v and %v, want %v", name, got, err, want)
		}
		if !started.mu.TryLock() {
			t.Fatalf("%s: got a table that is locked, want it unlocked", name)
		}
		started.mu.Unlock()
	}
	reap("no child", false)
	ours, end := waiting(t)
	must.Do(t, Start(ours))
	reap("a running child", false)
	end()
	if !ended(unix.P_PID, ours.Process.Pid, 0) {
		t.Error("got a child that runs, want it ended")
	}
	reap("a child that somebody waits for", false)
	var exit *exec.ExitError
	if err := Wait(ours); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("got %v, want exit status 1 of a read at the end", err)
	}
	select {
	case <-started.waited:
	default:
		t.Error("got no sign that Wait has returned, want one for Reap")
	}

	other, end := waiting(t)
	must.Do(t, other.Start())
	end()
	ended(unix.P_PID, other.Process.Pid, 0)
	reap("an orphan", true)
	if err := other.Wait(); !errors.Is(err, syscall.ECHILD) {
		t.Errorf("got %v from the wait for an orphan, want %v", err, syscall.ECHILD)
	}
	reap("nothing left", false)
	atRest(t)
}

// TestForgetSparesLaterChild checks that the end of a child does not remove a later child of the same
// number from the table.
func TestForgetSparesLaterChild(t *testing.T) {
	t.Parallel()
	earlier, later := &os.Process{Pid: 5}, &os.Process{Pid: 5}
	own := table{processes: map[int]*os.Process{5: later}, waited: make(chan struct{}, 1)}
	own.forget(earlier)
	if own.processes[5] != later {
		t.Errorf("got %v, want the later child kept", own.processes)
	}
	own.forget(later)
	if len(own.processes) > 0 {
		t.Errorf("got %v, want no child", own.processes)
	}
	if !own.mu.TryLock() {
		t.Error("got a table that is locked, want it unlocked")
	}
}

// TestIgnoringEINTR checks that an interrupted call is made again, and that no other error is dropped.
func TestIgnoringEINTR(t *testing.T) {
	t.Parallel()
	for _, want := range []error{nil, unix.ECHILD} {
		answers := []error{unix.EINTR, unix.EINTR, want}
		err := ignoringEINTR(func() error {
			answer := answers[0]
			answers = answers[1:]
			return answer
		})
		if !errors.Is(err, want) || len(answers) > 0 {
			t.Errorf("got %v with %d calls left, want %v and none", err, len(answers), want)
		}
	}
}

// TestAdoptedChild checks that an adopted child has the score and the limit of a started one, that its
// success is no error, and that nobody can wait for it twice.
func TestAdoptedChild(t *testing.T) { //nolint:paralleltest // it looks at the table of all children
	started, end := waiting(t)
	must.Do(t, Start(started))
	adopted, endAdopted := waiting(t)
	adopted.Args[2] = "read line; exit 0"
	must.Do(t, adopted.Start())
	p, err := Adopt(adopted.Process.Pid)
	must.Do(t, err)
	if _, err := Adopt(p.Pid); err == nil {
		t.Error("got no error from a second adoption")
	}
	kept := func(pid int) (score string, l unix.Rlimit) {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/oom_score_adj")
		must.Do(t, errors.Join(err, unix.Prlimit(pid, unix.RLIMIT_NPROC, nil, &l)))
		return string(text), l
	}
	wantScore, wantLimit := kept(started.Process.Pid)
	if score, limit := kept(p.Pid); score != wantScore || limit != wantLimit {
		t.Errorf("got score %s and limit %+v, want %s and %+v", score, limit, wantScore, wantLimit)
	}
	endAdopted()
	must.Do(t, WaitAdopted(p))
	if _, failed := errors.AsType[*exec.ExitError](WaitAdopted(p)); failed {
		t.Error("got the status of a process that is gone, want another error")
	}
	end()
	_ = Wait(started)
	atRest(t)
}
