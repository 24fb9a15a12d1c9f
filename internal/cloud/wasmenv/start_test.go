package wasmenv_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/wasmenv"
	"github.com/e2bctl/e2bctl/internal/cloud/wasmenv/wasmtest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestWritesNothing checks that Deno, which caches compiled code wherever it can, leaves no files
// behind: not even as root, and not in its default places.
func TestWritesNothing(t *testing.T) {
	t.Parallel()
	env := wasmtest.Need(t)
	command, err := wasmenv.Command(env.Dir, []string{t.TempDir()}, 0)
	must.Do(t, err)
	chosen := t.TempDir()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Env = append(wasmenv.Environ(), "HOME="+chosen, "XDG_CACHE_HOME="+filepath.Join(chosen, "cache"), "TMPDIR="+chosen)
	cmd.Dir = chosen
	start(t, cmd)
	if left, err := os.ReadDir(chosen); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v, want nothing", left, err)
	}
	for _, variable := range wasmenv.Environ() {
		name, dir, _ := strings.Cut(variable, "=")
		if name != "DENO_DIR" {
			continue
		}
		if _, err := os.Lstat(dir); err == nil {
			t.Errorf("Deno has made %s", dir)
		}
		return
	}
	t.Error("no DENO_DIR: Deno would choose one by itself")
}

// TestStartsUnderLimit checks that Python starts if a limit on data bounds the memory of a sandbox.
// Such a limit counts mapped memory.
func TestStartsUnderLimit(t *testing.T) {
	t.Parallel()
	env := wasmtest.Need(t)
	const memory = 512 << 20
	command, err := wasmenv.Command(env.Dir, nil, memory)
	must.Do(t, err)
	limited := []string{"-c", `ulimit -d "$1" && shift && exec "$@"`, "sh", fmt.Sprint((memory + wasmenv.ReservedBytes) >> 10)}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", append(limited, command...)...)
	cmd.Env, cmd.Dir = wasmenv.Environ(), "/"
	start(t, cmd)
}

// start runs the command of a kernel until Python in it is ready.
func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.Stderr = t.Output()
	stdin, err := cmd.StdinPipe()
	must.Do(t, err)
	stdout, err := cmd.StdoutPipe()
	must.Do(t, err)
	must.Do(t, cmd.Start())
	_, err = stdin.Write([]byte(`{"type":"start","env":{},"content":{"places":[],"directory":"/"}}` + "\n"))
	line, failed := bufio.NewReader(stdout).ReadString('\n')
	if err = errors.Join(err, failed, stdin.Close(), cmd.Wait()); err != nil || !strings.Contains(line, `"ready"`) {
		t.Fatalf("got %q, %v, want a Python that is ready", line, err)
	}
}
