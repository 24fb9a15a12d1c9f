//go:build linux

package room

import (
	"errors"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPidOfClosed checks that a process is asked for while its sandbox ends: it is found, or
// the descriptor is closed, and no other descriptor of its number is read.
func TestPidOfClosed(t *testing.T) {
	t.Parallel()
	for range 100 {
		fd, err := unix.PidfdOpen(os.Getpid(), 0)
		if err != nil {
			t.Fatal(err)
		}
		pidfd := os.NewFile(uintptr(fd), "pidfd")
		var asking sync.WaitGroup
		asking.Go(func() {
			if pid, err := pidOf(pidfd); !errors.Is(err, os.ErrClosed) && (err != nil || pid != os.Getpid()) {
				t.Errorf("got %d, %v, want this process or that it is closed", pid, err)
			}
		})
		if err := pidfd.Close(); err != nil {
			t.Error(err)
		}
		asking.Wait()
	}
}
