//go:build unix

package pyenv

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

// TestShortage checks that an interpreter that could not be started for lack of
// a resource does not count as missing.
func TestShortage(t *testing.T) {
	var own syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &own); err != nil {
		t.Fatal(err)
	}
	few := own
	few.Cur = 3 // as many as are open already, so that no pipe can be made
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	env, err := System(t.Context(), "")
	if back := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &own); back != nil {
		t.Fatal(back)
	}
	const want = "python: look for an interpreter: no more files can be opened; raise ulimit -n: "
	if errors.Is(err, ErrNoPython) || err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %+v, %v, want %q", env, err, want)
	}
}
