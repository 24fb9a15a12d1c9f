package sandbox

import (
	"context"
	"io"
	"net/http"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestManyHandles checks that handles that are open and in use for an hour need no more memory and goroutines at
// its end than at its beginning, that their leases are renewed all the time, and that nothing is left of them
// when they are closed. In a soak there are a thousand.
//
//nolint:paralleltest // other tests would use the process, too
func TestManyHandles(t *testing.T) {
	const lease, every = 5 * time.Minute, 2 * time.Minute
	handles := 25
	if os.Getenv("SOAK") != "" {
		handles = 1000
	}
	before := runtime.NumGoroutine()
	synctest.Test(t, func(t *testing.T) {
		s := newPipedService(t)
		var renewals atomic.Int64
		s.control = func(_ http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && len(r.URL.Path) > len("/sandboxes") {
				renewals.Add(1)
			}
		}
		s.files = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "content") }
		s.start = func(_ context.Context, _ *process.StartRequest, stream *connect.ServerStream[process.StartResponse]) error {
			if err := started(stream, 7); err != nil {
				return err
			}
			return stream.Send(&process.StartResponse{Event: &process.ProcessEvent{Event: &process.ProcessEvent_End{End: &process.ProcessEvent_EndEvent{Exited: true}}}})
		}
		c := s.client()
		open := make([]*Sandbox, handles)
		for i := range open {
			sb, err := c.Create(t.Context(), WithExpiry(Expiry{After: lease, Renew: true}))
			must.Do(t, err)
			open[i] = sb
		}
		work := func() {
			for _, sb := range open {
				if data, err := sb.Files.Read(t.Context(), "a", nil); err != nil || string(data) != "content" {
					t.Fatalf("got %q, %v", data, err)
				}
				if _, err := sb.Commands.Run(t.Context(), "true", nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		pass := func(d time.Duration) {
			for range int(d / every) {
				<-time.After(every)
				work()
			}
		}
		pass(2 * lease)
		goroutines, heap := settled(s)
		renewals.Store(0)
		pass(time.Hour)
		synctest.Wait() // for the renewals at the end of the hour
		// A lease is renewed each time half of it has passed.
		if got, want := renewals.Load(), int64(handles)*int64(time.Hour/(lease/2)); got != want {
			t.Errorf("%d renewals in an hour, want %d", got, want)
		}
		nowGoroutines, nowHeap := settled(s)
		t.Logf("%d handles: %d goroutines and %d bytes before, %d and %d after an hour", handles, goroutines, heap, nowGoroutines, nowHeap)
		if nowGoroutines > goroutines || nowHeap > heap+256<<10+handles<<10 {
			t.Error("an hour leaves goroutines or memory")
		}
		for _, sb := range open {
			must.Do(t, sb.Close())
		}
		must.Do(t, c.Close())
	})
	// A goroutine counts until the scheduler has taken it away.
	patience.Until(t, "the end of all goroutines", func() bool { return runtime.NumGoroutine() <= before })
}

// settled returns how many goroutines there are, and how many bytes, when everything is at rest. The record of the
// service's calls is dropped.
func settled(s *service) (goroutines, heap int) {
	synctest.Wait()
	s.mu.Lock()
	s.calls = nil
	s.mu.Unlock()
	runtime.GC()
	runtime.GC() // objects with a finalizer
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return runtime.NumGoroutine(), int(memory.HeapAlloc)
}
