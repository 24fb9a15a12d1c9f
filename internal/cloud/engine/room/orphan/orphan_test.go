//go:build linux

package orphan

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestChildrenOf: children are found in both ways, and it is an error if they
// cannot be looked for.
func TestChildrenOf(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	must.Do(t, cmd.Start())
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	for name, list := range map[string]func(int) ([]int, error){"children": ChildrenOf, "scan": scanChildren} {
		if pids, err := list(os.Getpid()); err != nil || !slices.Contains(pids, cmd.Process.Pid) {
			t.Errorf("%s: %v, %v", name, pids, err)
		}
		if pids, err := list(1 << 30); err == nil {
			t.Errorf("%s of no process: %v", name, pids)
		}
	}
	broken := errors.New("no /proc")
	if err := End(func() ([]int, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Errorf("endOrphans: %v", err)
	}
}
