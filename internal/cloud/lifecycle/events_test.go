package lifecycle

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// TestReadersThatNeverRead checks that 1,000 readers who keep their first page and never ask again hold no
// further events, and that 1,000 who wait do not stop the writer.
func TestReadersThatNeverRead(t *testing.T) {
	const readers, events, page = 1000, 11_000, 100
	all := func(*Event) bool { return true }
	none := func(*Event) bool { return false }
	log := newEventLog()
	add := func(n int) {
		log.add(Event{Type: EventRefused, Host: fmt.Sprintf("%d.%s", n, strings.Repeat("x", 2*maxHow))})
	}
	ctx, stop := context.WithCancel(t.Context())
	var waiting, have sync.WaitGroup
	for range readers {
		have.Add(1)
		waiting.Go(func() {
			kept, next, _ := log.After(ctx, 0, all, page)
			have.Done()
			log.After(ctx, next, none, page) // waits until ctx ends
			runtime.KeepAlive(kept)
		})
	}
	add(0)
	have.Wait()
	for n := range events {
		add(n + 1)
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	// The texts and the events that the log keeps, and the goroutines of the readers.
	if limit := uint64(maxEvents*(maxHow+500) + readers*16<<10); m.HeapAlloc+m.StackInuse > limit {
		t.Errorf("%d MiB are in use, want at most %d", (m.HeapAlloc+m.StackInuse)>>20, limit>>20)
	}
	if got, next, missed := log.After(ctx, 1, all, page); len(got) != page || missed != events-maxEvents || next != missed+1+page {
		t.Errorf("a reader who comes back: got %d events up to %d, and %d missed", len(got), next, missed)
	}
	stop()
	waiting.Wait()
}
