package calltest

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestGarbage watches calls that the runtime does not know of while another goroutine makes garbage, 256 MB
// in all. If it were collected, nothing would go on.
func TestGarbage(t *testing.T) {
	t.Parallel()
	begun, made := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(made)
		<-begun
		kept := make([][]byte, 64)
		for i := range 1 << 12 {
			kept[i%len(kept)] = make([]byte, 1<<16)
		}
	}()
	calls := 0
	failed, err := FailNth(t, unix.SYS_GETPGID, 1<<30, unix.EIO, func() error {
		for close(begun); ; calls++ {
			if _, _, err := unix.RawSyscall(unix.SYS_GETPGID, 0, 0, 0); err != 0 {
				return err
			}
			select {
			case <-made:
				return nil
			default:
			}
		}
	})
	if failed || err != nil {
		t.Errorf("got %v, %v, want no failed call", failed, err)
	}
	t.Logf("%d calls were held", calls)
}
