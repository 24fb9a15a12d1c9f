//go:build linux

package child

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

func startGroup(t *testing.T, script string) (*Group, *bufio.Reader) {
	t.Helper()
	ours, theirs, err := os.Pipe()
	must.Do(t, err)
	defer theirs.Close()
	t.Cleanup(func() { ours.Close() })
	g, err := StartGroup(&exec.Cmd{Path: "/bin/sh", Args: []string{"sh", "-c", script}, Env: os.Environ(), Stdout: theirs})
	must.Do(t, err)
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g, bufio.NewReader(ours)
}

// reap reaps the orphans of the test process until the test ends.
func reap(t *testing.T) {
	t.Helper()
	must.Do(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	ctx, cancel := context.WithCancel(context.Background())
	reaped := make(chan error, 1)
	go func() { reaped <- Reap(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-reaped; err != nil {
			t.Errorf("Reap: %v", err)
		}
	})
}

// byNumber makes the group behave as on a kernel without pidfds.
func (g *Group) byNumber(t *testing.T) {
	t.Helper()
	if g.leader == nil {
		return
	}
	must.Do(t, g.leader.Close())
	g.leader = nil
}

// TestGroupOutlivesLeader checks that Signal still reaches the processes that the leader left
// behind, and reaches nothing after these have ended.
func TestGroupOutlivesLeader(t *testing.T) {
	reap(t)
	for name, prepare := range map[string]func(*Group){
		"by descriptor": func(*Group) {},
		"by number":     func(g *Group) { g.byNumber(t) },
	} {
		t.Run(name, func(t *testing.T) {
			g, out := startGroup(t, `sleep 600 & echo left; exit 7`)
			prepare(g)
			if exit := (*exec.ExitError)(nil); !errors.As(g.Wait(), &exit) || exit.ExitCode() != 7 || g.State().ExitCode() != 7 {
				t.Errorf("ended as %v, want exit status 7", g.State())
			}
			if line, err := out.ReadString('\n'); line != "left\n" {
				t.Fatalf("got %q, %v, want %q", line, err, "left\n")
			}
			if err := g.Signal(unix.SIGKILL); err != nil {
				t.Fatalf("Signal: %v", err)
			}
			if rest, err := out.ReadString(0); rest != "" { // the pipe ends when its last holder does
				t.Errorf("got %q, %v, want nothing", rest, err)
			}
			patience.Until(t, "the group has ended", func() bool { return errors.Is(g.Signal(unix.SIGKILL), unix.ESRCH) })
		})
	}
}

// TestSignalSparesSuccessor checks that Signal does not reach a later group that was given the
// number of a group that has ended.
func TestSignalSparesSuccessor(t *testing.T) {
	const lastPID = "/proc/sys/kernel/ns_last_pid"
	if f, err := os.OpenFile(lastPID, os.O_WRONLY, 0); err != nil {
		t.Skipf("this test chooses the number of a process: %v", err)
	} else {
		f.Close()
	}
	for name, prepare := range map[string]func(*Group){
		"by descriptor": func(*Group) {},
		"by number":     func(g *Group) { g.byNumber(t) },
	} {
		t.Run(name, func(t *testing.T) {
			g, _ := startGroup(t, `exit 0`)
			prepare(g)
			must.Do(t, g.Wait())
			successor := successorOf(t, g.PID(), lastPID)
			if err := g.Signal(unix.SIGKILL); !errors.Is(err, unix.ESRCH) {
				t.Errorf("Signal: %v, want no such process", err)
			}
			if err := successor.Process.Signal(unix.SIGTERM); err != nil {
				t.Errorf("the successor: %v", err)
			}
			_ = successor.Wait()
			if status := successor.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != unix.SIGTERM {
				t.Errorf("the successor ended by %v, want %v", status.Signal(), unix.SIGTERM)
			}
		})
	}
}

// successorOf starts a group with the given number. Other programs start processes
// too, so it takes several tries.
func successorOf(t *testing.T, pid int, lastPID string) *exec.Cmd {
	t.Helper()
	for range 200 {
		if err := os.WriteFile(lastPID, []byte(strconv.Itoa(pid-1)), 0); err != nil {
			t.Skipf("this test chooses the number of a process: %v", err)
		}
		cmd := &exec.Cmd{Path: "/bin/sleep", Args: []string{"sleep", "600"}, SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
		must.Do(t, cmd.Start())
		if cmd.Process.Pid == pid {
			return cmd
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Skipf("no process got the number %d", pid)
	return nil
}

// TestWaitTakesNoThread checks that waiting for many groups at once takes no thread for each of
// them.
func TestWaitTakesNoThread(t *testing.T) {
	const many = 200
	before := threads(t)
	groups := make([]*Group, many)
	var waits sync.WaitGroup
	for i := range groups {
		groups[i], _ = startGroup(t, `exec sleep 600`)
		if groups[i].leader == nil {
			t.Skip("the kernel has no pidfds")
		}
		waits.Go(func() { _ = groups[i].Wait() })
	}
	if more := threads(t) - before; more > many/2 {
		t.Errorf("%d threads more to wait for %d processes, want at most %v", more, many, many/2)
	}
	for _, g := range groups {
		if err := g.Signal(unix.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	waits.Wait()
	for _, g := range groups {
		if !strings.Contains(fmt.Sprint(g.State()), "killed") {
			t.Errorf("ended as %v, want %q", g.State(), "killed")
		}
	}
}

func threads(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/task")
	must.Do(t, err)
	return len(list)
}

// TestStartGroupKeepsAttributes checks that a group has a session of its own besides the attributes that
// the caller gave.
func TestStartGroupKeepsAttributes(t *testing.T) {
	for name, attributes := range map[string]*syscall.SysProcAttr{"none": nil, "some": {Pdeathsig: syscall.SIGKILL}} {
		cmd, end := waiting(t)
		cmd.SysProcAttr = attributes
		g, err := StartGroup(cmd)
		must.Do(t, err)
		if session, err := unix.Getsid(g.PID()); session != g.PID() || err != nil {
			t.Errorf("%s: got session %d and %v, want %d", name, session, err, g.PID())
		}
		if attributes != nil && cmd.SysProcAttr.Pdeathsig != attributes.Pdeathsig {
			t.Errorf("%s: got %+v, want the caller's attribute in it", name, cmd.SysProcAttr)
		}
		if g.leader == nil && hasDescriptors() {
			t.Errorf("%s: got a leader without a descriptor, want one", name)
		}
		end()
		_ = g.Wait()
		must.Do(t, g.Close())
		if !g.mu.TryLock() {
			t.Fatalf("%s: got a group that is locked, want it unlocked", name)
		}
		g.mu.Unlock()
		atRest(t)
	}
}

// TestClosedGroup checks that Close is idempotent, and that no signal reaches a closed group, even if it
// runs.
func TestClosedGroup(t *testing.T) {
	for name, prepare := range map[string]func(*Group){
		"by descriptor": func(*Group) {},
		"by number":     func(g *Group) { g.byNumber(t) },
	} {
		cmd, end := waiting(t)
		g, err := StartGroup(cmd)
		must.Do(t, err)
		prepare(g)
		must.Do(t, errors.Join(g.Close(), g.Close()))
		if err := g.Signal(unix.SIGKILL); !errors.Is(err, unix.ESRCH) {
			t.Errorf("%s: got %v, want %v", name, err, unix.ESRCH)
		}
		end()
		var exit *exec.ExitError
		if err := g.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("%s: got %v, want exit status 1 of a read at the end", name, err)
		}
		atRest(t)
	}
}

// TestSignalByDescriptorFails checks that the number of a group is used if its descriptor cannot be used:
// because the kernel has none, or because it is closed, or because the kernel does not know the call.
func TestSignalByDescriptorFails(t *testing.T) {
	cmd, end := waiting(t)
	g, err := StartGroup(cmd)
	must.Do(t, err)
	must.Is(t, g.signalByDescriptor(1000), errors.ErrUnsupported)
	if g.leader != nil {
		must.Do(t, g.leader.Close())
		must.Is(t, g.signalByDescriptor(unix.SIGTERM), errors.ErrUnsupported)
	}
	g.leader = nil
	must.Is(t, g.signalByDescriptor(unix.SIGTERM), errors.ErrUnsupported)
	must.Do(t, g.Signal(unix.SIGTERM))
	end()
	_ = g.Wait() // the state says how it ended
	if status := g.State().Sys().(syscall.WaitStatus); status.Signal() != unix.SIGTERM {
		t.Errorf("got %v, want the end by %v", g.State(), unix.SIGTERM)
	}
	must.Do(t, g.Close())
}

// hasDescriptors reports whether the kernel has descriptors of processes.
func hasDescriptors() bool {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	return err == nil && unix.Close(fd) == nil
}

// TestEnded checks that a running child has not ended, and that something that is no child has.
func TestEnded(t *testing.T) {
	cmd, end := waiting(t)
	must.Do(t, Start(cmd))
	if ended(unix.P_PID, cmd.Process.Pid, unix.WNOHANG) {
		t.Error("got a running child as ended")
	}
	end()
	_ = Wait(cmd)
	if !ended(unix.P_PID, cmd.Process.Pid, unix.WNOHANG) {
		t.Error("got a child without an end that is gone, want its end")
	}
}
