//go:build linux

package child_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestReap makes this test process the reaper of real orphans, while commands with different exit
// statuses start and end. No orphan may stay, and no status may be lost.
func TestReap(t *testing.T) {
	must.Do(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	ctx, cancel := context.WithCancel(t.Context())
	reaped := make(chan error, 1)
	go func() { reaped <- child.Reap(ctx) }()

	dir := t.TempDir()
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			name := filepath.Join(dir, strconv.Itoa(i))
			// The inner shell becomes an orphan when the outer one exits, and ends
			// later.
			cmd := command("/bin/sh", "-c",
				`(sh -c 'echo $$ >"$0.tmp"; mv "$0.tmp" "$0"; exit 3' "$1" &) ; exit "$2"`, "sh", name, strconv.Itoa(i))
			if err := child.Start(cmd); err != nil {
				t.Error(err)
				return
			}
			err := child.Wait(cmd)
			if i == 0 && err != nil {
				t.Errorf("Wait: %v, want success", err)
			}
			if exit := (*exec.ExitError)(nil); i != 0 && (!errors.As(err, &exit) || exit.ExitCode() != i) {
				t.Errorf("Wait: %v, want exit status %d", err, i)
			}
			awaitGone(t, awaitPid(t, name))
		})
	}
	wg.Wait()
	cancel()
	if err := <-reaped; err != nil {
		t.Errorf("Reap: %v", err)
	}
}

func TestStartError(t *testing.T) {
	cmd := command("/nonexistent/program")
	if err := child.Start(cmd); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Start: %v, want not exist", err)
	}
}

func TestStartIsPreferredVictim(t *testing.T) {
	cmd := command("/bin/sh", "-c", "read line")
	stdin, err := cmd.StdinPipe()
	must.Do(t, err)
	must.Do(t, child.Start(cmd))
	score, err := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/oom_score_adj")
	must.Do(t, err)
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	must.Do(t, err)
	var of, parent int
	fmt.Sscan(string(score), &of)
	fmt.Sscan(string(own), &parent)
	if want := min(parent+child.Badness, child.MaxBadness); of != want {
		t.Errorf("oom_score_adj = %d, want %d, which is more than this process's", of, want)
	}
	stdin.Close()
	_ = child.Wait(cmd)
}

func command(path string, args ...string) *exec.Cmd {
	return &exec.Cmd{Path: path, Args: append([]string{path}, args...), Env: os.Environ()}
}

func awaitPid(t *testing.T, name string) int {
	t.Helper()
	var pid int
	patience.Until(t, "the orphan has said its pid", func() bool {
		text, err := os.ReadFile(name)
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	})
	return pid
}

func awaitGone(t *testing.T, pid int) {
	t.Helper()
	patience.Until(t, "the orphan "+strconv.Itoa(pid)+" has ended", func() bool {
		return errors.Is(unix.Kill(pid, 0), unix.ESRCH)
	})
}

// TestAdopt checks that an orphan keeps its exit status for the process that adopted it while the
// reaper runs. A pid that is not a child, or already has an owner, is refused.
func TestAdopt(t *testing.T) {
	must.Do(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	name := filepath.Join(t.TempDir(), "pid")
	parent := command("/bin/sh", "-c", "(read line; exit 7) <&3 & echo $! > "+name)
	r, w, err := os.Pipe()
	must.Do(t, err)
	parent.ExtraFiles = []*os.File{r}
	must.Do(t, child.Start(parent))
	must.Do(t, child.Wait(parent))
	r.Close()
	p, err := child.Adopt(awaitPid(t, name))
	must.Do(t, err)
	if _, err := child.Adopt(p.Pid); err == nil {
		t.Error("it was adopted twice")
	}
	if _, err := child.Adopt(1); err == nil {
		t.Error("a process that is no child was adopted")
	}
	w.Close()
	var exit *exec.ExitError
	if err := child.WaitAdopted(p); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("it ended with %v, want status 7", err)
	}
}
