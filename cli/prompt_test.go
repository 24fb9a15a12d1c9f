//go:build linux

package cli

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
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

	shown, _ := interrupted(t, create.Env, "[y/N] ", "kill", "--all", "--no-env-file")
	if want := "i00000000000000000001"; !strings.Contains(shown, want) {
		t.Errorf("the terminal got %q, want %s in it", shown, want)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.killed) > 0 {
		t.Errorf("killed %v, want nothing", s.killed)
	}
}

// Ctrl-C at a prompt for a password ends the command at once, too, and restores
// the terminal's echo.
func TestInterruptAtAPassword(t *testing.T) {
	t.Parallel()
	sandboxtest.New(t, local.WithWarm(0)) // skips on a machine that cannot run a local cloud
	_, terminal := interrupted(t, os.Environ(), "word? ", "code", "run", "--local", "-c", "import getpass; getpass.getpass('word? ')")
	state, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	must.Do(t, err)
	if state.Lflag&unix.ECHO == 0 {
		t.Error("the terminal no longer shows what is typed")
	}
}

// interrupted runs e2bctl on a terminal, presses Ctrl-C at the prompt, and returns
// the terminal's output.
func interrupted(t *testing.T, env []string, prompt string, args ...string) (shown string, end *os.File) {
	t.Helper()
	patience.SoonAfter(t, "the end at Ctrl-C", cmdutil.CleanupGrace/2, func() func() {
		terminal, tty, err := pty.Open()
		must.Do(t, err)
		t.Cleanup(func() {
			terminal.Close()
			tty.Close()
		})
		cmd := exec.CommandContext(t.Context(), "e2bctl", args...)
		cmd.Env = env
		cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		must.Do(t, cmd.Start())
		var screen strings.Builder
		part := make([]byte, 4096)
		for !strings.Contains(screen.String(), prompt) {
			n, err := terminal.Read(part)
			if err != nil {
				t.Fatalf("%v after %q, want %q", err, &screen, prompt)
			}
			screen.Write(part[:n])
		}
		shown, end = screen.String(), tty
		return func() {
			_, err := terminal.WriteString("\x03")
			must.Do(t, err)
			if status := shellStatus(t, cmd.Wait()); status != 130 {
				t.Errorf("status %d, want 130; the terminal got %q", status, &screen)
			}
		}
	})
	return shown, end
}
