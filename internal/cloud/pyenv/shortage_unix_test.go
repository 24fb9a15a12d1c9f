//go:build unix

package pyenv

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestShortage checks that an interpreter that could not be started because a resource was
// exhausted does not count as missing.
func TestShortage(t *testing.T) {
	var own syscall.Rlimit
	must.Do(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &own))
	few := own
	few.Cur = 3 // as many as are open already, so that no pipe can be made
	must.Do(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few))
	env, err := System(t.Context(), "")
	must.Do(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &own))
	const want = "python: look for an interpreter: no more files can be opened; raise ulimit -n: "
	if errors.Is(err, ErrNoPython) || err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %+v, %v, want %q", env, err, want)
	}
}
