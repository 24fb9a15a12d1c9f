//go:build linux

package room

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// chain is a script of a few chains of processes, in which each process starts the
// next one and ends. All of them hold the lock on a file in the home. Chains that
// nothing ends stop after half a minute, and write that to the file.
const chain = `
import fcntl, os, time
lock = open("lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print("locked", flush=True)
null = os.open("/dev/null", os.O_RDWR)
for fd in range(3): os.dup2(null, fd)
end = time.monotonic() + 30
for i in range(7):
    if os.fork() == 0: break
while time.monotonic() < end:
    try:
        if os.fork(): os._exit(0)
        os.setsid()
    except OSError: pass
lock.write("outlived")
`

func startChain(t *testing.T, s *Sandbox) *os.File {
	t.Helper()
	return holdLock(t, s, "python3 -c '"+chain+"'")
}

// startDetached starts a process that has left its session and its parent.
func startDetached(t *testing.T, s *Sandbox) *os.File {
	t.Helper()
	return holdLock(t, s, `python3 -c '
import fcntl, os, time
lock = open("lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print("locked", flush=True)
null = os.open("/dev/null", os.O_RDWR)
for fd in range(3): os.dup2(null, fd)
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
time.sleep(240)'`)
}

// holdLock runs a command that locks a file in its home and leaves processes that
// hold the lock. It returns the file; its lock is free when no process is left.
func holdLock(t *testing.T, s *Sandbox, command string) *os.File {
	t.Helper()
	if got := sh(t, s, command); got.Output != "locked\n" {
		t.Fatalf("%+v", got)
	}
	f, err := os.Open(filepath.Join(s.place.home(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if isFree(f) {
		t.Fatal("nobody holds the lock")
	}
	return f
}

func isFree(f *os.File) bool {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}

// roomPID returns the process of the room, which was started by its guard if there
// are no namespaces.
func roomPID(t testing.TB, r *Room) int {
	t.Helper()
	pid := r.room.cmd.Process.Pid
	if r.rung == engine.Full {
		return pid
	}
	children, err := childrenOf(pid)
	if err != nil || len(children) != 1 {
		t.Fatalf("the guard has the children %v, %v", children, err)
	}
	return children[0]
}

// TestChain: processes that start others faster than anything could list them end
// with their sandbox, whether it is closed or its agent was killed; other sandboxes
// start meanwhile.
func TestChain(t *testing.T) {
	t.Parallel()
	for _, rung := range []engine.Isolation{engine.Restricted, engine.None} {
		for _, closed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/closed %v", rung, closed), func(t *testing.T) {
				t.Parallel()
				r := newRoomOn(t, rung)
				s := newSandbox(t, r, engine.SandboxOptions{})
				lock := startChain(t, s)
				if !closed {
					conn, err := s.Dial(t.Context(), 49983)
					if err != nil {
						t.Fatal(err)
					}
					fmt.Fprint(conn, "POST /run HTTP/1.0\r\nContent-Length: 30\r\n\r\n"+`{"Command":"kill -KILL $PPID"}`)
					_, _ = io.Copy(io.Discard, conn) // until the agent is gone
					conn.Close()
					if got := sh(t, newSandbox(t, r, engine.SandboxOptions{ID: "meanwhile"}), "echo alive"); got.Output != "alive\n" {
						t.Errorf("%+v", got)
					}
					<-s.Done()
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				if !isFree(lock) {
					t.Error("a chain goes on")
				}
				if text, err := io.ReadAll(lock); err != nil || len(text) > 0 {
					t.Errorf("a chain ended by itself: %s, %v", text, err)
				}
			})
		}
	}
}

// TestRoomKilled: processes that left their session and their parent do not outlive
// the room either.
func TestRoomKilled(t *testing.T) {
	t.Parallel()
	for _, rung := range []engine.Isolation{engine.Restricted, engine.None} {
		t.Run(string(rung), func(t *testing.T) {
			t.Parallel()
			r := newRoomOn(t, rung)
			s := newSandbox(t, r, engine.SandboxOptions{})
			lock := startDetached(t, s)
			if err := unix.Kill(roomPID(t, r), unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			<-s.Done()
			if err := s.Err(); !errors.Is(err, ErrRoomEnded) {
				t.Errorf("it ended by %v", err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if !isFree(lock) {
				t.Error("a process is left")
			}
		})
	}
}

// TestProcessesLeft: if nothing is there to end the processes that are left, Close
// says so.
func TestProcessesLeft(t *testing.T) {
	t.Parallel()
	r := startRoom(t, Options{Isolation: engine.Restricted})
	s, err := r.NewSandbox(t.Context(), engine.SandboxOptions{ID: "test"})
	if err != nil {
		t.Fatal(err)
	}
	// The process that this leaves lives for seconds.
	if got := sh(t, s, "setsid sleep 20 >/dev/null 2>&1 & echo started"); got.Output != "started\n" {
		t.Errorf("%+v", got)
	}
	room := roomPID(t, r)
	if err := errors.Join(unix.Kill(r.room.cmd.Process.Pid, unix.SIGKILL), unix.Kill(room, unix.SIGKILL)); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	// A group that could be removed had no process in it.
	if err := s.Close(); errors.Is(err, engine.ErrProcessesLeft) != (len(s.group.dirs) == 0) {
		t.Errorf("the sandbox: %v", err)
	}
	if err := r.Close(); !errors.Is(err, engine.ErrProcessesLeft) {
		t.Errorf("the room: %v", err)
	}
}

// TestRemoveGroup: in a group processes end too, without any other help.
func TestRemoveGroup(t *testing.T) {
	t.Parallel()
	mounts, err := cgroupMounts()
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, m := range mounts {
		if m.version == 1 && !slices.Contains(m.controllers, "pids") {
			continue
		}
		dir := filepath.Join(m.own, "e2bctl-test-"+strings.ToLower(filepath.Base(t.TempDir()))+fmt.Sprint(os.Getpid()))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Logf("%s: %v", dir, err)
			continue
		}
		tried++
		home := t.TempDir()
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `echo $$ > "$0/cgroup.procs" && exec python3 -c "$1"`, dir, chain)
		cmd.Dir = home
		if out, err := cmd.Output(); err != nil || string(out) != "locked\n" {
			t.Errorf("%q, %v", out, err)
		}
		if err := removeGroups(context.Background(), []string{dir}); err != nil {
			t.Errorf("version %d: %v", m.version, err)
		}
		lock, err := os.Open(filepath.Join(home, "lock"))
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		if !isFree(lock) {
			t.Errorf("version %d: the chain goes on", m.version)
		}
	}
	if tried == 0 {
		t.Skip("this user may not make control groups")
	}
}

// TestChildrenOf: children are found in both ways, and it is an error if they
// cannot be looked for.
func TestChildrenOf(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	for name, list := range map[string]func(int) ([]int, error){"children": childrenOf, "scan": scanChildren} {
		if pids, err := list(os.Getpid()); err != nil || !slices.Contains(pids, cmd.Process.Pid) {
			t.Errorf("%s: %v, %v", name, pids, err)
		}
		if pids, err := list(1 << 30); err == nil {
			t.Errorf("%s of no process: %v", name, pids)
		}
	}
	broken := errors.New("no /proc")
	if err := endOrphans(func() ([]int, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Errorf("endOrphans: %v", err)
	}
}
