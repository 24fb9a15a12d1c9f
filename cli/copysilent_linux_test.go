package cli

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestCopyOfASilentStdin checks that a copy from stdin ends when its destination does, although
// stdin sends nothing and stays open.
func TestCopyOfASilentStdin(t *testing.T) {
	t.Parallel()
	cloud, ending := sandboxtest.New(t, local.WithWarm(0)), sandboxtest.New(t, local.WithWarm(0))
	sb, paused := cloud.Create(t), cloud.Create(t)
	client, err := sandbox.NewClient(ending.Option())
	must.Do(t, err)
	defer client.Close()
	_, err = client.Volumes.Create(t.Context(), "v")
	must.Do(t, err)
	t.Run("ends", func(t *testing.T) {
		for name, test := range map[string]struct {
			cloud  *sandboxtest.Cloud
			args   []string
			end    func() error
			status int
			stderr string
		}{
			"killed":     {cloud, []string{"cp", "-", sb.ID() + ":dir"}, func() error { return sb.Kill(t.Context()) }, exitConflict, "is gone"},
			"paused":     {cloud, []string{"cp", "-", paused.ID() + ":dir"}, func() error { return paused.Pause(t.Context(), nil) }, exitConflict, "is paused"},
			"no service": {ending, []string{"volume", "cp", "-", "v:file"}, ending.Close, exitNetwork, "no answer"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				home := t.TempDir()
				cmd := exec.CommandContext(t.Context(), "e2bctl", test.args...)
				cmd.Env = append(append(os.Environ(), test.cloud.Env()...), "HOME="+home, "XDG_RUNTIME_DIR="+home, "E2BCTL_LOCAL=")
				var stderr strings.Builder
				cmd.Stderr = &stderr
				stdin, err := cmd.StdinPipe()
				must.Do(t, err)
				defer stdin.Close()
				must.Do(t, cmd.Start())
				if _, err := stdin.Write(bytes.Repeat([]byte("x"), 1<<20)); err != nil { // no buffer takes this much: the copy has begun
					t.Error(err)
				}
				must.Do(t, test.end())
				err = cmd.Wait()
				if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != test.status || !strings.Contains(stderr.String(), test.stderr) {
					t.Errorf("got %v and %q, want status %d and %q", err, stderr.String(), test.status, test.stderr)
				}
			})
		}
	})
}
