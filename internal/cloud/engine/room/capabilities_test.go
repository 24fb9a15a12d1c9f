//go:build linux

package room

import (
	"fmt"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/capability"
)

// TestCapabilities reads the capabilities of envd and of a command that it
// runs.
func TestCapabilities(t *testing.T) {
	t.Parallel()
	for _, level := range []engine.Isolation{engine.Full, engine.Restricted} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			r := newRoomOn(t, level)
			envd := capability.Kept(level == engine.Full && r.ids.ranged)
			const script = `for p in $PPID self; do for c in CapEff CapPrm CapInh CapAmb; do sed -n "s/^$c:[[:space:]]*//p" /proc/$p/status; done; done`
			want := fmt.Sprintf("%016x\n%016x\n%016x\n%016x\n", envd, envd, 0, 0)
			if got := sh(t, newSandbox(t, r, engine.SandboxOptions{}), script); got.Output != want+want {
				t.Errorf("got\n%s of envd and a process, want\n%s", got.Output, want+want)
			}
		})
	}
}
