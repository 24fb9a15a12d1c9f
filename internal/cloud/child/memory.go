//go:build linux

package child

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
)

// ErrOutOfMemory reports that a process was killed because the sandbox reached its
// memory limit.
var ErrOutOfMemory = errors.New("out of memory")

// Memory is the memory limit of the sandbox. A nil Memory means that there is no limit.
type Memory struct {
	// Limit is the number of bytes. Once the Memory is used, only SetLimit changes it.
	Limit uint64
	// Kills returns how many processes have been killed because of the limit so far. Kills is
	// called before each process starts and after it has ended.
	Kills func() int
}

// SetLimit changes Limit.
func (m *Memory) SetLimit(bytes uint64) {
	if m != nil {
		atomic.StoreUint64(&m.Limit, bytes)
	}
}

// Watch is called before a process starts. The caller calls the returned function with the state of
// the process when the process has ended. If the process, or the last command of a shell, was
// killed because memory ran out, that function returns an error that Is [ErrOutOfMemory]. Otherwise
// it returns nil.
func (m *Memory) Watch() func(*os.ProcessState) error {
	if m == nil || m.Kills == nil {
		return func(*os.ProcessState) error { return nil }
	}
	before := m.Kills()
	return func(state *os.ProcessState) error {
		if !killed(state) || m.Kills() == before {
			return nil
		}
		return fmt.Errorf("%w: the sandbox's limit is %s", ErrOutOfMemory, size(atomic.LoadUint64(&m.Limit)))
	}
}

// Count is called before something runs. The returned function counts the processes of the sandbox
// that were killed since the call of Count because memory ran out. It also counts processes that
// are not children of this process.
func (m *Memory) Count() func() int {
	if m == nil || m.Kills == nil {
		return func() int { return 0 }
	}
	before := m.Kills()
	return func() int { return m.Kills() - before }
}

// killed reports whether SIGKILL ended the process, or the last command of a shell.
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
