//go:build unix

package cli

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/must"
)

// codeRun runs hostile code with both streams on a terminal and returns the
// terminal's input.
func codeRun(t *testing.T, args ...string) string {
	t.Helper()
	s := newService(t)
	terminal, end, err := pty.Open()
	must.Do(t, err)
	defer terminal.Close()
	cmd := exec.CommandContext(t.Context(), "e2bctl", append([]string{"code", "run", "--no-env-file", "-q", "-c", "hostile"}, args...)...)
	cmd.Env = append(s.env(), "HOME="+t.TempDir())
	cmd.Stdout, cmd.Stderr = end, end
	must.Do(t, cmd.Start())
	if err := end.Close(); err != nil {
		t.Error(err)
	}
	var screen bytes.Buffer
	_, _ = screen.ReadFrom(terminal) // it ends with EIO on Linux
	if status := shellStatus(t, cmd.Wait()); status != 1 {
		t.Errorf("status %d, want 1", status)
	}
	return strings.ReplaceAll(screen.String(), "\r\n", "\n")
}

// Code can send only text to a terminal.
func TestHostileCodeOnATerminal(t *testing.T) {
	t.Parallel()
	const traceback = "red\t100%\r2\n" // the SDK has removed sequences from it
	const text = "]0;owned]52;c;b3duZWQ=\\red\t100%\r"
	want := "printed\nwarned\n" + text + "end" + text + "end" + text + "1\n" + traceback
	if got := codeRun(t); got != want {
		t.Errorf("the terminal got %q, want %q", got, want)
	}
	got := codeRun(t, "-o", "json")
	for _, r := range got {
		if r != '\n' && cmdutil.IsActive(r) {
			t.Errorf("the terminal got %q in JSON: %q", r, got)
		}
	}
	var view struct{ Stdout string }
	must.Do(t, json.Unmarshal([]byte(got), &view))
	if want := "printed\n" + hostileText + "\x1b[2Jend\x1b[3"; view.Stdout != want {
		t.Errorf("the JSON has %q, want %q", view.Stdout, want)
	}
}

// A pipe gets every byte.
func TestHostileCodeInAPipe(t *testing.T) {
	t.Parallel()
	s := newService(t)
	cmd := exec.CommandContext(t.Context(), "e2bctl", "code", "run", "--no-env-file", "-q", "-c", "hostile")
	cmd.Env = append(s.env(), "HOME="+t.TempDir())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if status := shellStatus(t, cmd.Run()); status != 1 {
		t.Errorf("status %d, want 1", status)
	}
	const printed = hostileText + "\x1b[2Jend\x1b[3"
	if want := "printed\n" + printed + hostileText + "1\n"; stdout.String() != want {
		t.Errorf("stdout %q, want %q", &stdout, want)
	}
	const traceback = "\u009b2Jred\x00\u202e\t100%\r2\n" // as the SDK returns it
	if want := "warned\n" + printed + traceback; stderr.String() != want {
		t.Errorf("stderr %q, want %q", &stderr, want)
	}
}
