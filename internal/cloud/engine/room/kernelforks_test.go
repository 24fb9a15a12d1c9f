//go:build linux

package room

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestKernelForks checks that the kernel that waits is given away once, and not after it has gone,
// and that its socket is closed at once when it is ended.
func TestKernelForks(t *testing.T) {
	t.Parallel()
	t.Run("allowance", boundsForks)
	for _, tt := range []struct {
		name  string
		then  func(k *kernelForks, peer *os.File)
		taken bool
	}{
		{"taken", func(*kernelForks, *os.File) {}, true},
		{"gone", func(_ *kernelForks, peer *os.File) { peer.Close() }, false},
		{"ended", func(k *kernelForks, _ *os.File) { k.endAhead() }, false},
		{"ended twice", func(k *kernelForks, _ *os.File) {
			k.endAhead()
			k.endAhead()
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			socket, peer, err := wire.SocketPair(unix.SOCK_STREAM)
			must.Do(t, err)
			defer peer.Close()
			var k kernelForks
			if k.waiting() || k.take() != nil {
				t.Error("a kernel waits before there is one")
			}
			if k.keep(socket); !k.waiting() {
				t.Error("no kernel waits")
			}
			tt.then(&k, peer)
			got := k.take()
			if (got == socket) != tt.taken {
				t.Errorf("got the kernel %v, want one: %v", got, tt.taken)
			}
			if _, err := socket.Stat(); errors.Is(err, os.ErrClosed) == tt.taken {
				t.Errorf("stat of the kernel's socket: %v, want an open one: %v", err, tt.taken)
			}
			if k.waiting() || k.take() != nil {
				t.Error("the kernel still waits")
			}
			socket.Close()
		})
	}
}

// boundsForks checks the number of forks at once and later.
func boundsForks(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var a allowance
	take := func(n int) (taken int) {
		for range n {
			if a.take(now) {
				taken++
			}
		}
		return taken
	}
	for _, tt := range []struct {
		after time.Duration
		want  int
	}{{0, maxForks}, {0, 0}, {forkEvery, 1}, {forkEvery / 2, 0}, {forkEvery / 2, 1}, {time.Hour, maxForks}} {
		now = now.Add(tt.after)
		if got := take(1000); got != tt.want {
			t.Errorf("%v later %d are allowed, want %d", tt.after, got, tt.want)
		}
	}
}
