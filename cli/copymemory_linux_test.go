package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestCopyTakesConstantMemory checks that cp of a large file takes about as much memory as cp of
// a small one, in both directions.
func TestCopyTakesConstantMemory(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	id := cloud.Create(t).ID()
	dir := t.TempDir()
	// peak returns the most memory in bytes that e2bctl had.
	peak := func(args ...string) int64 {
		cmd := exec.CommandContext(t.Context(), "e2bctl", append([]string{"cp", "-q"}, args...)...)
		cmd.Env = append(append(os.Environ(), cloud.Env()...), "HOME="+dir, "XDG_RUNTIME_DIR="+dir, "E2BCTL_LOCAL=")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("cp %q: %v: %.500s", args, err, out)
		}
		return cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
	}
	const small, large, most = 1 << 20, 128 << 20, 32 << 20
	file := filepath.Join(dir, "file")
	peaks := map[int64][2]int64{}
	for _, size := range []int64{small, large} {
		must.Do(t, os.WriteFile(file, nil, 0o600))
		must.Do(t, os.Truncate(file, size)) // it takes no room on this machine's disk
		peaks[size] = [2]int64{peak(file, id+":file"), peak(id+":file", file)}
		if info, err := os.Stat(file); err != nil || info.Size() != size {
			t.Fatalf("copied are %v, %v, want %d bytes", info, err, size)
		}
	}
	for i, direction := range []string{"into the sandbox", "out of the sandbox"} {
		if more := peaks[large][i] - peaks[small][i]; more > most {
			t.Errorf("%s: %d MiB take %d MiB more memory than %d MiB, want at most %d", direction, large>>20, more>>20, small>>20, most>>20)
		} else {
			t.Logf("%s: %d MiB more", direction, more>>20)
		}
	}
}
