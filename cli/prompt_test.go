//go:build unix

package cli

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
)

// Ctrl-C at a question ends the command at once, and nothing is done.
func TestInterruptAtAPrompt(t *testing.T) {
	t.Parallel()
	s := newService(t)
	create := exec.CommandContext(t.Context(), "e2bctl", "create", "--no-env-file")
	create.Env = append(s.env(), "HOME="+t.TempDir())
	if out, err := create.CombinedOutput(); err != nil {
		t.Fatalf("create: %v: %s", err, out)
	}

	cmd := exec.CommandContext(t.Context(), "e2bctl", "kill", "--all", "--no-env-file")
	cmd.Env = create.Env
	terminal, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	var screen strings.Builder
	part := make([]byte, 4096)
	for !strings.Contains(screen.String(), "[y/N] ") {
		n, err := terminal.Read(part)
		if err != nil {
			t.Fatalf("%v after %q, want a question", err, &screen)
		}
		screen.Write(part[:n])
	}
	asked := time.Now()
	if _, err := terminal.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	for {
		n, err := terminal.Read(part)
		screen.Write(part[:n])
		if err != nil {
			break // EIO at its end, on Linux
		}
	}
	if status := shellStatus(t, cmd.Wait()); status != 130 {
		t.Errorf("status %d, want 130; the terminal got %q", status, &screen)
	}
	if took := time.Since(asked); took >= cleanupGrace {
		t.Errorf("it ended after %v, want at once", took)
	}
	if want := "i00000000000000000001"; !strings.Contains(screen.String(), want) {
		t.Errorf("the terminal got %q, want %s in it", &screen, want)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.killed) > 0 {
		t.Errorf("killed %v, want nothing", s.killed)
	}
}
