//go:build unix

package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/e2bctl/e2bctl/internal/must"
)

// ls --watch prints a line for each change until it is interrupted.
func TestListWatchLines(t *testing.T) {
	t.Parallel()
	s := newService(t)
	cmd := exec.CommandContext(t.Context(), "e2bctl", "ls", "--watch", "-o", "jsonl", "--no-env-file")
	cmd.Env = append(s.env(), "HOME="+t.TempDir())
	out, err := cmd.StdoutPipe()
	must.Do(t, err)
	e2bctl := func(args ...string) string {
		t.Helper()
		other := exec.CommandContext(t.Context(), "e2bctl", append(args, "--no-env-file")...)
		other.Env = cmd.Env
		printed, err := other.Output()
		if err != nil {
			t.Fatalf("e2bctl %q: %v", args, err)
		}
		return strings.TrimSpace(string(printed))
	}
	id := e2bctl("create")
	must.Do(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for _, step := range []struct{ do, want string }{{"", "added"}, {"pause", "changed"}, {"kill", "removed"}} {
		if step.do != "" {
			e2bctl(step.do, id)
		}
		var change struct {
			Type    string
			Sandbox struct{ SandboxID string }
		}
		if !lines.Scan() {
			t.Fatalf("the output ended before %s: %v", step.want, lines.Err())
		}
		if err := json.Unmarshal(lines.Bytes(), &change); err != nil || change.Type != step.want || change.Sandbox.SandboxID != id {
			t.Errorf("got %q (%v), want %s of %s", lines.Text(), err, step.want, id)
		}
	}
	must.Do(t, cmd.Process.Signal(os.Interrupt))
	for lines.Scan() {
		t.Errorf("got %q after the interrupt", lines.Text())
	}
	if status := shellStatus(t, cmd.Wait()); status != 130 {
		t.Errorf("status %d, want 130", status)
	}
}

// On a terminal it draws the table over the last one, as wide as the terminal is now.
func TestListWatchOnATerminal(t *testing.T) {
	t.Parallel()
	s := newService(t)
	terminal, end, err := pty.Open()
	must.Do(t, err)
	defer terminal.Close()
	must.Do(t, pty.Setsize(end, &pty.Winsize{Rows: 24, Cols: 120}))
	env := append(s.env(), "HOME="+t.TempDir(), "TERM=xterm")
	create := exec.CommandContext(t.Context(), "e2bctl", "create", "--no-env-file")
	create.Env = env
	if text, err := create.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	cmd := exec.CommandContext(t.Context(), "e2bctl", "ls", "--watch", "--no-env-file")
	cmd.Env, cmd.Stdout, cmd.Stderr = env, end, end
	must.Do(t, cmd.Start())
	readUntil(t, terminal, "METADATA")
	must.Do(t, pty.Setsize(end, &pty.Winsize{Rows: 24, Cols: 21}))
	screen := readUntil(t, terminal, "METADATA")
	_, frame, ok := strings.Cut(screen, "\x1b[H\x1b[2J")
	if !ok {
		t.Errorf("the terminal got %q, want a cleared screen", screen)
	}
	for line := range strings.Lines(frame) {
		if len(strings.TrimRight(line, "\r\n")) > 21 {
			t.Errorf("a line of %q is longer than 21 columns", frame)
		}
	}
	must.Do(t, cmd.Process.Signal(os.Interrupt))
	if status := shellStatus(t, cmd.Wait()); status != 130 {
		t.Errorf("status %d, want 130", status)
	}
	if err := end.Close(); err != nil {
		t.Error(err)
	}
}

// readUntil reads a terminal until it got text.
func readUntil(t *testing.T, terminal *os.File, text string) string {
	t.Helper()
	var screen bytes.Buffer
	for part := make([]byte, 4096); !strings.Contains(screen.String(), text); {
		n, err := terminal.Read(part)
		if err != nil {
			t.Fatalf("the terminal ended (%v) after %q, want %q", err, &screen, text)
		}
		screen.Write(part[:n])
	}
	return screen.String()
}
