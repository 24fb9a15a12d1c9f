//go:build linux

package room

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/chaintest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/orphan"
	"github.com/e2bctl/e2bctl/internal/must"
)

func startChain(t *testing.T, s *Sandbox) *os.File {
	t.Helper()
	return holdLock(t, s, "python3 -c '"+chaintest.Script+"'")
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
// hold the lock. It returns the file; its lock is free when no process remains.
func holdLock(t *testing.T, s *Sandbox, command string) *os.File {
	t.Helper()
	if got := sh(t, s, command); got.Output != "locked\n" {
		t.Fatalf("%+v", got)
	}
	f, err := os.Open(filepath.Join(s.files.root.Home(), "lock"))
	must.Do(t, err)
	t.Cleanup(func() { f.Close() })
	if chaintest.IsFree(f) {
		t.Fatal("nobody holds the lock")
	}
	return f
}

// roomPID returns the process of the room, which was started by its guard if there
// are no namespaces.
func roomPID(t testing.TB, r *Room) int {
	t.Helper()
	pid := r.process.first.Cmd.Process.Pid
	if r.level == engine.Full {
		return pid
	}
	children, err := orphan.ChildrenOf(pid)
	if err != nil || len(children) != 1 {
		t.Fatalf("the guard has the children %v, %v", children, err)
	}
	return children[0]
}

// TestChain checks that processes that start others faster than they can be listed
// end with their sandbox, whether it is closed or its envd is killed. Other
// sandboxes start in the meantime.
func TestChain(t *testing.T) {
	t.Parallel()
	for _, level := range []engine.Isolation{engine.Restricted, engine.None} {
		for _, closed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/closed %v", level, closed), func(t *testing.T) {
				t.Parallel()
				r := newRoomOn(t, level)
				s := newSandbox(t, r, engine.SandboxOptions{})
				lock := startChain(t, s)
				if !closed {
					conn, err := s.Dial(t.Context(), 49983)
					must.Do(t, err)
					fmt.Fprint(conn, "POST /run HTTP/1.0\r\nContent-Length: 30\r\n\r\n"+`{"Command":"kill -KILL $PPID"}`)
					_, _ = io.Copy(io.Discard, conn) // until envd is gone
					conn.Close()
					if got := sh(t, newSandbox(t, r, engine.SandboxOptions{ID: "meanwhile"}), "echo alive"); got.Output != "alive\n" {
						t.Errorf("%+v", got)
					}
					<-s.Done()
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				if !chaintest.IsFree(lock) {
					t.Error("a chain goes on")
				}
				if text, err := io.ReadAll(lock); err != nil || len(text) > 0 {
					t.Errorf("a chain ended by itself: %s, %v", text, err)
				}
			})
		}
	}
}

// TestRoomKilled checks that processes that left their session and their parent do
// not outlive the room either.
func TestRoomKilled(t *testing.T) {
	t.Parallel()
	for _, level := range []engine.Isolation{engine.Restricted, engine.None} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			r := newRoomOn(t, level)
			s := newSandbox(t, r, engine.SandboxOptions{})
			lock := startDetached(t, s)
			must.Do(t, unix.Kill(roomPID(t, r), unix.SIGKILL))
			<-s.Done()
			if err := s.Err(); !errors.Is(err, ErrRoomEnded) {
				t.Errorf("it ended by %v", err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if !chaintest.IsFree(lock) {
				t.Error("a process is left")
			}
		})
	}
}

// TestProcessesLeft checks that Close returns an error if no process can end the
// remaining ones.
func TestProcessesLeft(t *testing.T) {
	t.Parallel()
	r := startRoom(t, Options{Isolation: engine.Restricted})
	s, err := r.NewSandbox(t.Context(), engine.SandboxOptions{ID: "test"})
	must.Do(t, err)
	// The process that this starts lives for seconds.
	if got := sh(t, s, "setsid sleep 20 >/dev/null 2>&1 & echo started"); got.Output != "started\n" {
		t.Errorf("%+v", got)
	}
	room := roomPID(t, r)
	must.Do(t, errors.Join(unix.Kill(r.process.first.Cmd.Process.Pid, unix.SIGKILL), unix.Kill(room, unix.SIGKILL)))
	<-s.Done()
	// A group that could be removed had no process in it.
	if err := s.Close(); errors.Is(err, engine.ErrProcessesLeft) != (len(s.share.group.Dirs) == 0) {
		t.Errorf("the sandbox: %v", err)
	}
	if err := r.Close(); !errors.Is(err, engine.ErrProcessesLeft) {
		t.Errorf("the room: %v", err)
	}
}
