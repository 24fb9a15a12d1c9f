//go:build linux

package room

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// saidWriter passes on each logged line.
type saidWriter chan string

func (w saidWriter) Write(p []byte) (int, error) { w <- string(p); return len(p), nil }

// killKeeper kills the process of a keeper and returns the server's log line about it.
func killKeeper(t *testing.T, k *Keeper, said saidWriter) string {
	t.Helper()
	must.Do(t, k.running().Cmd.Process.Kill())
	for {
		select {
		case line := <-said:
			if strings.Contains(line, "the keeper died") {
				return line
			}
		case <-patience.Context(t).Done():
			t.Fatal("nothing is said of the keeper's death")
		}
	}
}

func newKeeper(t *testing.T) (*Keeper, saidWriter) {
	t.Helper()
	said := make(saidWriter, 10)
	k, err := StartKeeper(t.Context(), KeeperOptions{Dir: instanceDir(t), Logger: slog.New(slog.NewTextHandler(said, nil))})
	must.Do(t, err)
	return k, said
}

// TestKeeperWithoutALock checks that no keeper starts without the lock of its instance, which
// would look like a stale one to other servers.
func TestKeeperWithoutALock(t *testing.T) {
	t.Parallel()
	dir := instanceDir(t)
	mkdir(t, filepath.Join(dir, "lock")) // in the place of the lock file
	_, err := StartKeeper(t.Context(), KeeperOptions{Dir: dir})
	must.Is(t, err, fs.ErrExist)
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("there are %v, error %v, want only the directory of the test", entries, err)
	}
}

// TestKeeperKilled checks that another process replaces a killed one, and cleans up when the
// server ends.
func TestKeeperKilled(t *testing.T) {
	t.Parallel()
	k, said := newKeeper(t)
	if line := killKeeper(t, k, said); !strings.Contains(line, "took its place") || !strings.Contains(line, "killed") {
		t.Errorf("it said %s", line)
	}
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.control.Close() // as the kernel does when the server ends
	<-k.watched
	if what := (left{Dir: k.spec.Dir, Roots: k.spec.Roots, Groups: k.spec.Groups}).remains(); what != "" {
		t.Errorf("%s is left", what)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
}

// TestKeepersKilled checks that the server itself cleans up if each process is killed.
func TestKeepersKilled(t *testing.T) {
	t.Parallel()
	k, said := newKeeper(t)
	r, err := Start(t.Context(), Options{Keeper: k, Isolation: engine.None})
	must.Do(t, err)
	s := newSandbox(t, r, engine.SandboxOptions{})
	var line string
	for range engine.MaxDeaths {
		line = killKeeper(t, k, said)
	}
	if !strings.Contains(line, "there is no other") {
		t.Errorf("at last it said %s", line)
	}
	if got := sh(t, s, "echo alive"); got.Output != "alive\n" {
		t.Errorf("a sandbox without a keeper: %+v", got)
	}
	l := left{Dir: k.spec.Dir, Roots: k.spec.Roots, Groups: k.spec.Groups, Pids: []int{r.process.first.Cmd.Process.Pid, k.running().Cmd.Process.Pid}}
	if err := errors.Join(r.Close(), k.Close()); err != nil {
		t.Error(err)
	}
	if what := l.remains(); what != "" {
		t.Errorf("%s is left", what)
	}
}

// TestNextRoom checks that a later room has its keeper's directory and groups.
func TestNextRoom(t *testing.T) {
	t.Parallel()
	for _, level := range []engine.Isolation{engine.Full, engine.Restricted, engine.None} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			checkLevel(t, level)
			k, err := StartKeeper(t.Context(), KeeperOptions{Dir: instanceDir(t)})
			must.Do(t, err)
			for range 2 {
				r, err := Start(t.Context(), Options{Keeper: k, Isolation: level})
				must.Do(t, err)
				s := newSandbox(t, r, engine.SandboxOptions{})
				if got := sh(t, s, "echo alive"); got.Output != "alive\n" {
					t.Errorf("%+v", got)
				}
				must.Do(t, unix.Kill(roomPID(t, r), unix.SIGKILL))
				<-r.Done()
				if err := s.Err(); !errors.Is(err, ErrRoomEnded) || !strings.Contains(err.Error(), "signal 9") {
					t.Errorf("the sandbox ended by %v", err)
				}
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			}
			if err := k.Close(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(k.spec.Dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the directory is left: %v", err)
			}
		})
	}
}
