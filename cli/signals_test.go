//go:build unix

package cli

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestRunIsStopped sends signals to a run whose command never ends. Afterwards the
// sandbox must be gone, and the status must name the signal.
func TestRunIsStopped(t *testing.T) {
	t.Parallel()
	// Under nohup SIGHUP is ignored, and stays ignored in children of a process
	// that does not catch it.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(hangups) })
	tests := []struct {
		name     string
		template string
		signals  []syscall.Signal
		status   int // as a shell reports it: 128 + n also for a process that a signal ended
		left     int
	}{
		{"interrupt", "base", []syscall.Signal{syscall.SIGINT}, 130, 0},
		{"terminate", "base", []syscall.Signal{syscall.SIGTERM}, 143, 0},
		{"hangup", "base", []syscall.Signal{syscall.SIGHUP}, 129, 0},
		// A second signal, which a shell may send with the first, leaves the sandbox
		// time to end.
		{"interrupt twice", "tenacious", []syscall.Signal{syscall.SIGINT, syscall.SIGINT}, 130, 0},
		// A service that never answers the kill: after the first signal e2bctl gives
		// up when the grace period is over, after a second one sooner.
		{"interrupt, service hangs", "immortal", []syscall.Signal{syscall.SIGINT}, 130, 1},
		{"interrupt twice, service hangs", "immortal", []syscall.Signal{syscall.SIGINT, syscall.SIGINT}, 130, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			stop := func() {
				s := newService(t)
				cmd := exec.CommandContext(t.Context(), "e2bctl", "run", "--no-env-file", "-t", tt.template, "echo ready; exec sleep 600")
				cmd.Env = append(s.env(), "HOME="+t.TempDir())
				var stderr bytes.Buffer
				cmd.Stderr = &stderr
				stdout, err := cmd.StdoutPipe()
				must.Do(t, err)
				must.Do(t, cmd.Start())
				if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
					t.Fatalf("first line %q, %v; stderr: %s", line, err, &stderr)
				}
				for i, signal := range tt.signals {
					if i > 0 {
						<-s.killAsked // the first signal has been handled
					}
					must.Do(t, cmd.Process.Signal(signal))
				}
				close(s.killNow)
				err = cmd.Wait()
				if got := shellStatus(t, err); got != tt.status {
					t.Errorf("status %d, want %d; stderr: %s", got, tt.status, &stderr)
				}
				if cmd.ProcessState.ExitCode() < 0 {
					t.Errorf("it ended by %v, want a status of its own", cmd.ProcessState)
				}
				if strings.Contains(stderr.String(), "panic") {
					t.Errorf("stderr: %s", &stderr)
				}
				s.mu.Lock()
				defer s.mu.Unlock()
				if len(s.sandboxes) != tt.left {
					t.Errorf("%d sandboxes are left, want %d", len(s.sandboxes), tt.left)
				}
			}
			if len(tt.signals) == 1 {
				stop()
				return
			}
			patience.Soon(t, "the end at a second signal", cmdutil.CleanupGrace*4/5, stop)
		})
	}
}

func shellStatus(t *testing.T, err error) int {
	t.Helper()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		t.Fatalf("it ended with %v, want a status", err)
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return exit.ExitCode()
}
