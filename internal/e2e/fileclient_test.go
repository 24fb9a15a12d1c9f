//go:build linux

package e2e

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/e2bctl/e2bctl/internal/memtest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// This test is not parallel, because the allocations of others would count.
func TestFileMemoryIsConstant(t *testing.T) {
	sb := shared(t).Create(t)
	const size = 256 << 20
	allocated := memtest.Allocated(func() { // the cloud's edge is also in this process
		must.Do(t, sb.Files.WriteFrom(t.Context(), "big", io.LimitReader(pattern{}, size), nil))
		r, err := sb.Files.Open(t.Context(), "big", nil)
		must.Do(t, err)
		defer r.Close()
		if n, err := io.Copy(io.Discard, r); err != nil || n != size {
			t.Errorf("%d bytes came back, %v, want %d and no error", n, err, size)
		}
	})
	if allocated > 48<<20 {
		t.Errorf("%d MiB were allocated for 2 x %d MiB, want at most 48", allocated>>20, size>>20)
	}
}

func TestWatchEnds(t *testing.T) {
	t.Parallel()
	cloud := shared(t)
	sb := cloud.Create(t)
	last := func(w *sandbox.Watcher) (end error) {
		for _, err := range w.Events(t.Context()) {
			end = err
		}
		return end
	}
	watch := func(ctx context.Context) *sandbox.Watcher {
		t.Helper()
		w, err := sb.Files.Watch(ctx, ".", nil)
		must.Do(t, err)
		t.Cleanup(func() { w.Close() })
		return w
	}
	// A cancelled loop ends alone: the next one gets every event.
	patient := watch(t.Context())
	short, giveUp := context.WithCancel(t.Context())
	waited := make(chan error)
	go func() {
		var end error
		for _, err := range patient.Events(short) {
			end = err
		}
		waited <- end
	}()
	giveUp()
	if err := <-waited; !errors.Is(err, context.Canceled) {
		t.Errorf("a loop that was given up: %v", err)
	}
	sandboxtest.Run(t, sb, "touch here")
	for event, err := range patient.Events(t.Context()) {
		if err != nil || event.Name != "here" {
			t.Errorf("the next loop: %+v, %v", event, err)
		}
		break
	}

	closed := watch(t.Context())
	ended := make(chan error)
	go func() { ended <- last(closed) }()
	closed.Close()
	if err := <-ended; err != nil {
		t.Errorf("after Close: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	canceled := watch(ctx)
	cancel()
	if err := last(canceled); !errors.Is(err, context.Canceled) {
		t.Errorf("after a cancel: %v, want context.Canceled", err)
	}

	// These are more events than the stream and the kernel's queue can hold.
	slow := watch(t.Context())
	sandboxtest.Run(t, sb, `python3 -c '
import os
names = [c * 200 for c in "ab"]
for n in names: open(n, "w").close()
for i in range(300000):
    os.utime(names[i % 2])
'`)
	if err := last(slow); !errors.Is(err, sandbox.ErrWatchOverflow) {
		t.Errorf("after too much: %v, want sandbox.ErrWatchOverflow", err)
	}

	killed := watch(t.Context())
	must.Do(t, sb.Kill(t.Context()))
	if err := last(killed); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("after a kill: %v, want sandbox.ErrGone", err)
	}
}
