//go:build linux

package halt

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
)

// family is members that grow by one each time that they are listed, if grow is set.
type family struct {
	t    *testing.T
	grow bool
	pids []int
}

func (f *family) List() ([]int, error) {
	if f.grow {
		f.add()
	}
	return f.pids, nil
}

func (f *family) Has(pid int) bool { return slices.Contains(f.pids, pid) }

func (f *family) add() (pid int) {
	f.t.Helper()
	cmd := exec.Command("sleep", "1000")
	must.Do(f.t, cmd.Start())
	f.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	f.pids = append(f.pids, cmd.Process.Pid)
	return cmd.Process.Pid
}

func state(t *testing.T, pid int) byte {
	t.Helper()
	s, err := look(pid)
	must.Do(t, err)
	return s.state
}

// TestStop checks that running processes are stopped and then run again, and that a process that
// was stopped before stays so.
func TestStop(t *testing.T) {
	t.Parallel()
	f := &family{t: t}
	last, running, before := f.add(), f.add(), f.add()
	must.Do(t, unix.Kill(before, unix.SIGSTOP))
	for state(t, before) != stopped {
	}
	h, err := Stop(t.Context(), f, last)
	must.Do(t, err)
	for _, pid := range f.pids {
		if got := state(t, pid); got != stopped {
			t.Errorf("process %d is in state %c, want T", pid, got)
		}
	}
	must.Do(t, h.Continue())
	for _, pid := range []int{last, running} {
		for state(t, pid) == stopped {
		}
	}
	if got := state(t, before); got != stopped {
		t.Errorf("the process that was stopped before is in state %c, want T", got)
	}
}

// TestStopNever: when there are always more, nothing stays stopped.
func TestStopNever(t *testing.T) {
	t.Parallel()
	f := &family{t: t, grow: true}
	last := f.add()
	ctx, cancel := context.WithCancel(t.Context())
	enough := &until{f, 20, cancel}
	if _, err := Stop(ctx, enough, last); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	for _, pid := range f.pids {
		for state(t, pid) == stopped {
		}
	}
}

// until ends a context when a family has that number of members.
type until struct {
	*family
	most int
	end  context.CancelFunc
}

func (u *until) List() ([]int, error) {
	if len(u.pids) >= u.most {
		u.end()
	}
	return u.family.List()
}

// TestSignalOther: a process that has got the number of another one is left alone.
func TestSignalOther(t *testing.T) {
	t.Parallel()
	f := &family{t: t}
	p := &process{pid: f.add(), started: 1}
	if err := p.signal(unix.SIGKILL); err != nil {
		t.Error(err)
	}
	if s, err := look(p.pid); err != nil || s.ended() {
		t.Errorf("it was ended: %+v, %v", s, err)
	}
	gone := &process{pid: 1 << 30, started: 1}
	if err := gone.signal(unix.SIGKILL); err != nil {
		t.Errorf("a process that has ended: got %v", err)
	}
}
