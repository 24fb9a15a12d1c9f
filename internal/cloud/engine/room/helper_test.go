//go:build linux

package room

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestHelperThatStandsStill checks that a helper has ended when its user is done with it, even
// one that cannot notice that its connection is closed.
func TestHelperThatStandsStill(t *testing.T) {
	t.Parallel()
	binary, err := openBinary("", t.TempDir())
	must.Do(t, err)
	defer binary.Close()
	h, err := (&Room{keeper: &Keeper{binary: binary}}).startHelper(0, 0)
	must.Do(t, err)
	must.Do(t, unix.Kill(h.process.Cmd.Process.Pid, unix.SIGSTOP))
	h.end()
	select {
	case <-h.process.Done:
	default:
		t.Error("the helper is still there")
		h.process.Kill()
	}
}
