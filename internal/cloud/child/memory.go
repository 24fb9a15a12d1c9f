//go:build linux

package child

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// ErrOutOfMemory reports that a process was killed because the sandbox reached its
// memory limit.
var ErrOutOfMemory = errors.New("out of memory")

// Memory is the memory limit of the sandbox. A nil Memory is no limit.
type Memory struct {
	// Limit is in bytes.
	Limit uint64
	// Kills returns how many processes have been killed so far because of the limit.
	// It is called before and after each process.
	Kills func() int
}

// Watch is called before a process starts. When the process has ended, the function
// that Watch returned reports whether it, or everything it was waiting for, was
// killed because memory ran out: it returns an error that Is [ErrOutOfMemory], else
// nil.
func (m *Memory) Watch() func(*os.ProcessState) error {
	if m == nil || m.Kills == nil {
		return func(*os.ProcessState) error { return nil }
	}
	before := m.Kills()
	return func(state *os.ProcessState) error {
		if !killed(state) || m.Kills() == before {
			return nil
		}
		return fmt.Errorf("%w: the sandbox's limit is %s", ErrOutOfMemory, size(m.Limit))
	}
}

// Count is called before something runs. The function that it returns says how many processes
// of the sandbox have been killed since then because memory ran out, children and those of
// others included.
func (m *Memory) Count() func() int {
	if m == nil || m.Kills == nil {
		return func() int { return 0 }
	}
	before := m.Kills()
	return func() int { return m.Kills() - before }
}

// killed reports whether the process ended by SIGKILL, or is a shell reporting that
// of its last command.
func killed(state *os.ProcessState) bool {
	const shells = 128
	if state == nil {
		return false
	}
	status, ok := state.Sys().(syscall.WaitStatus)
	return ok && (status.Signaled() && status.Signal() == syscall.SIGKILL || status.ExitStatus() == shells+int(syscall.SIGKILL))
}

// size formats a number of bytes in the largest unit that yields a whole number.
func size(n uint64) string {
	units := [...]string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for ; i < len(units)-1 && n >= 1<<10 && n%(1<<10) == 0; i++ {
		n >>= 10
	}
	return fmt.Sprintf("%d %s", n, units[i])
}
