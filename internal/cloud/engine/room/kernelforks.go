//go:build linux

package room

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// kernelForks are the kernels that are forked for one sandbox: their number in a time, and the kernel
// that was forked ahead of its use. The zero value has forked none.
type kernelForks struct {
	allowed allowance // limits the number of kernels that may be forked
	ran     bool      // a kernel was requested; only the goroutine that serves envd writes it

	mu    sync.Mutex
	ahead *os.File // socket of a kernel that waits for its first use; nil without such a kernel
}

// waiting reports whether a kernel waits for its first use. It may be gone by now.
func (k *kernelForks) waiting() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ahead != nil
}

// keep makes kernel wait for its first use. No other kernel may be waiting.
func (k *kernelForks) keep(kernel *os.File) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ahead = kernel
}

// take returns the socket of the kernel that waits, if the kernel still exists. The caller closes it.
func (k *kernelForks) take() *os.File {
	k.mu.Lock()
	defer k.mu.Unlock()
	kernel := k.ahead
	k.ahead = nil
	if kernel != nil && hungUp(kernel) {
		kernel.Close()
		return nil
	}
	return kernel
}

// endAhead ends the kernel that waits, by closing its socket.
func (k *kernelForks) endAhead() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ahead != nil {
		k.ahead.Close()
		k.ahead = nil
	}
}

// hungUp reports whether the kernel at the other end of the socket is gone.
func hungUp(kernel *os.File) bool {
	polled := []unix.PollFd{{Fd: int32(kernel.Fd()), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(polled, 0)
	return n != 0 || err != nil
}

// maxForks is the number of kernels that a sandbox may have forked at once. After each forkEvery it
// may have one more kernel forked. Forks are limited because each fork costs the other sandboxes a
// few milliseconds of the zygote's time.
const (
	maxForks  = 64
	forkEvery = 100 * time.Millisecond
)

// allowance is a token bucket. Each token permits one fork of a kernel. Only one goroutine may use an
// allowance. The zero value is a full bucket.
type allowance struct{ empty time.Time } // the time at which the bucket had no token; it has gained one every forkEvery since

// take removes one token. It returns false if the bucket is empty.
func (a *allowance) take(now time.Time) bool {
	if full := now.Add(-maxForks * forkEvery); a.empty.Before(full) {
		a.empty = full
	}
	next := a.empty.Add(forkEvery)
	if next.After(now) {
		return false
	}
	a.empty = next
	return true
}
