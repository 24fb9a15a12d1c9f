//go:build linux

package cli

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// inContainer returns a command that runs e2bctl as the first process of a namespace.
func inContainer(t *testing.T, s *service, args ...string) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root makes a namespace of processes")
	}
	program, err := exec.LookPath("e2bctl")
	must.Do(t, err)
	cmd := exec.CommandContext(t.Context(), "unshare", append([]string{"--pid", "--fork", "--kill-child", "--mount-proc", program}, args...)...)
	cmd.Env = append(s.env(), "HOME="+t.TempDir())
	return cmd
}

// TestFirstProcess checks that e2bctl as the first process of a container waits for orphaned
// processes, passes signals on, and has the status of the command.
func TestFirstProcess(t *testing.T) {
	t.Parallel()
	s := newService(t)
	cmd := inContainer(t, s, "run", "--no-env-file", "-t", "base", "echo ready; exec sleep 600")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	must.Do(t, err)
	must.Do(t, cmd.Start())
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		t.Fatalf("first line %q, %v; stderr: %s", line, err, &stderr)
	}
	first := strings.TrimSpace(children(t, cmd.Process.Pid))
	enter := func(line string) string {
		out, err := exec.CommandContext(t.Context(), "nsenter", "--target", first, "--pid", "--mount", "sh", "-c", line).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
		return string(out)
	}
	enter("(sleep 0.01 & sleep 0.02 & true) &") // orphans like those of docker exec
	patience.Until(t, "what lost its parent is gone", func() bool {
		return !strings.Contains(enter("cat /proc/[0-9]*/stat 2>&1 || true") /* one may end meanwhile */, "(sleep)")
	})
	var pid int
	if _, err := fmt.Sscan(first, &pid); err != nil {
		t.Fatal(err)
	}
	must.Do(t, syscall.Kill(pid, syscall.SIGTERM))
	if got := shellStatus(t, cmd.Wait()); got != 143 {
		t.Errorf("status %d, want 143; stderr: %s", got, &stderr)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sandboxes) > 0 {
		t.Error("the sandbox is left")
	}
}

// TestFirstProcessStatus checks that a command that ends at once has its own status.
func TestFirstProcessStatus(t *testing.T) {
	t.Parallel()
	cmd := inContainer(t, newService(t), "run", "--no-env-file")
	if got := shellStatus(t, cmd.Run()); got != exitUsage {
		t.Errorf("status %d, want %d", got, exitUsage)
	}
}

// children returns the numbers of a process's children.
func children(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	must.Do(t, err)
	return string(text)
}
