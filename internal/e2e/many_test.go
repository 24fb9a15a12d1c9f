//go:build linux

package e2e

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// many is the number of repetitions in a soak; usual tests repeat a small part of them.
func many(usual, soak int) int {
	if os.Getenv("SOAK") != "" {
		return soak
	}
	return usual
}

// use is the use of this process, which is client and server.
type use struct{ heap, goroutines, descriptors int }

func used(t *testing.T) use {
	t.Helper()
	runtime.GC()
	runtime.GC() // what had a finalizer
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	descriptors, err := os.ReadDir("/proc/self/fd")
	must.Do(t, err)
	return use{int(memory.HeapAlloc), runtime.NumGoroutine(), len(descriptors)}
}

// settles checks that no goroutine and no descriptor was added since before, and that the heap grew by at most
// the given number of bytes. Ended connections may take a moment.
func settles(t *testing.T, before use, heap int) {
	t.Helper()
	var now use
	patience.Until(t, fmt.Sprintf("no more is used than %+v and %d bytes", before, heap), func() bool {
		now = used(t)
		return now.goroutines <= before.goroutines && now.descriptors <= before.descriptors && now.heap <= before.heap+heap
	})
	t.Logf("used %+v before and %+v after", before, now)
}

// quietCloud starts a cloud that prepares nothing in the background from now on. It has no log, because a test
// keeps its log in memory.
func quietCloud(t *testing.T) *sandboxtest.Cloud {
	t.Helper()
	cloud := sandboxtest.New(t, local.WithWarm(0), local.WithLogger(slog.New(slog.DiscardHandler)))
	python, err := local.FindPython(t.Context())
	must.Do(t, err)
	if python.Level != "plain" && cloud.Isolation() == local.Full {
		awaitWarm(t, cloud)
	}
	return cloud
}

// TestManyCells checks that many cells, each with a source of its own, leave nothing in client and server, and
// in a soak little in the kernel. A kernel keeps 10,000 cells, and the log of a sandbox 8 MiB, so that only a soak begins
// with a full record; what a kernel forgets is tested with the driver.
//
//nolint:paralleltest // other tests would use the process, too
func TestManyCells(t *testing.T) {
	cells, before := many(300, 1_000_000), many(50, 50_000)
	sb := quietCloud(t).Create(t)
	run := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			execution, err := sb.RunCode(t.Context(), fmt.Sprintf("n = %d\nn", i), nil)
			must.Do(t, err)
			if execution.Text() != strconv.Itoa(i) {
				t.Fatalf("cell %d: got %q, %v", i, execution.Text(), execution.Error)
			}
		}
	}
	private := func() int {
		t.Helper()
		n, err := strconv.Atoi(evaluateIn(t, sb, "", `[int(l.split()[1]) for l in open("/proc/self/smaps_rollup") if l.startswith("Private_Dirty")][0]`))
		must.Do(t, err)
		return n
	}
	run(0, before)
	first, kernel := used(t), private()
	run(before, before+cells)
	settles(t, first, 4<<20)
	grown := private() - kernel
	t.Logf("the kernel grew by %d KiB in %d cells", grown, cells)
	// In keeps an empty place for each earlier cell, in two lists.
	if most := cells / 16; grown > most && os.Getenv("SOAK") != "" {
		t.Errorf("the kernel grew by %d KiB in %d cells, want at most %d", grown, cells, most)
	}
}

// TestManySandboxes checks that many sandboxes, each with a cell, leave nothing: 30,000 in a soak. Four of them are there at a time.
//
//nolint:paralleltest // other tests would use the process, too
func TestManySandboxes(t *testing.T) {
	cloud := quietCloud(t)
	use := func() error {
		sb, err := sandbox.Create(t.Context(), cloud.Option())
		if err != nil {
			return err
		}
		execution, err := sb.RunCode(t.Context(), "6*7", nil)
		if err == nil && execution.Text() != "42" {
			err = fmt.Errorf("got %+v", execution)
		}
		return errors.Join(err, sb.Close())
	}
	run := func(count int) {
		t.Helper()
		var group errgroup.Group
		group.SetLimit(4)
		for range count {
			group.Go(use)
		}
		must.Do(t, group.Wait())
	}
	run(many(12, 5_000)) // the cloud keeps 10,000 events, and the logs of 1,000 ended sandboxes
	before := used(t)
	run(many(32, 25_000))
	settles(t, before, 4<<20)
}
