//go:build unix

package cli

import (
	"bytes"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestSignalsWhileInputIsAwaited checks that a signal ends a command whose standard input does
// not end: it says so itself, and is not cut off when the time for cleaning up is over.
func TestSignalsWhileInputIsAwaited(t *testing.T) {
	t.Parallel()
	const id = "i00000000000000000001"
	for _, line := range []string{
		"cp - " + id + ":dir", "code run -t base -", "secret create name", "template build name -f -",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			command := func(line string) *exec.Cmd {
				cmd := exec.CommandContext(t.Context(), "e2bctl", strings.Fields(line)...)
				cmd.Env = append(s.env(), "HOME="+t.TempDir())
				return cmd
			}
			must.Do(t, command("create base").Run())
			cmd := command(line)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			stdin, err := cmd.StdinPipe()
			must.Do(t, err)
			must.Do(t, cmd.Start())
			_, err = stdin.Write(make([]byte, 256<<10)) // more than a pipe holds: it reads
			must.Do(t, err)
			must.Do(t, cmd.Process.Signal(syscall.SIGINT))
			err = cmd.Wait()
			if got := shellStatus(t, err); got != 130 || !strings.Contains(stderr.String(), "stopped by signal: interrupt") {
				t.Errorf("status %d and %q, want 130 and the signal", got, &stderr)
			}
		})
	}
}
