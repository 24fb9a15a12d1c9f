package edge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/e2bctl/e2bctl/internal/gen/process/processconnect"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// TestStartsInOrder checks that requests take a place in the order of their arrival, and that a
// cancelled one takes none.
func TestStartsInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &starts{semaphore.NewWeighted(1)}
		first, err := s.enter(t.Context(), &slowness{})
		must.Do(t, err)
		gone, cancel := context.WithCancelCause(t.Context())
		var order []int
		var mu sync.Mutex
		for i := range 4 {
			ctx := t.Context()
			if i == 1 {
				ctx = gone
			}
			go func() {
				leave, err := s.enter(ctx, &slowness{})
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					if !errors.Is(err, io.ErrClosedPipe) {
						t.Errorf("the cancelled request: got %v, want the cause", err)
					}
					return
				}
				order = append(order, i)
				leave()
				leave() // a second call has no effect
			}()
			synctest.Wait()
		}
		cancel(io.ErrClosedPipe)
		synctest.Wait()
		if len(order) > 0 {
			t.Fatalf("requests %v entered while the place was taken", order)
		}
		first()
		synctest.Wait()
		if !slices.Equal(order, []int{0, 2, 3}) {
			t.Errorf("requests entered in the order %v, want 0, 2, 3", order)
		}
		checkFree(t, s, 1)
	})
}

// TestSlowStart checks that a request without an answer leaves its place at the limit, and that
// later requests to its sandbox take none for a while.
func TestSlowStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, slow, begin := &starts{semaphore.NewWeighted(1)}, &slowness{}, time.Now()
		late, err := s.enter(t.Context(), slow)
		must.Do(t, err)
		next, err := s.enter(t.Context(), &slowness{})
		must.Do(t, err)
		if waited := time.Since(begin); waited != startLimit {
			t.Errorf("the next request waited for %v, want %v", waited, startLimit)
		}
		// The only place is taken.
		for _, wait := range []time.Duration{0, slowFor - time.Nanosecond} {
			next()
			time.Sleep(wait) //nolint:forbidigo // its time is fake
			next, err = s.enter(t.Context(), &slowness{})
			must.Do(t, err)
			again, err := s.enter(t.Context(), slow)
			must.Do(t, err)
			again()
			late()
			if s.places.TryAcquire(1) {
				t.Error("a request that has no place left one")
			}
		}
		next()
		time.Sleep(time.Nanosecond) //nolint:forbidigo // its time is fake
		leave, err := s.enter(t.Context(), slow)
		must.Do(t, err)
		if s.places.TryAcquire(1) {
			t.Errorf("a request to a sandbox that was slow %v ago takes no place", slowFor)
		}
		leave()
		time.Sleep(startLimit) //nolint:forbidigo // its time is fake
		synctest.Wait()
		if since := time.Since(*slow.at.Load()); since < slowFor {
			t.Error("a request with an answer in time made its sandbox slow")
		}
		checkFree(t, s, 1)
	})
}

// checkFree checks that all places are free.
func checkFree(t *testing.T, s *starts, places int64) {
	t.Helper()
	if !s.places.TryAcquire(places) {
		t.Fatalf("not all of %d places are free", places)
	}
	s.places.Release(places)
	if s.places.TryAcquire(places + 1) {
		t.Errorf("there are more than %d places", places)
	}
}

// TestRunningCommandsTakeNoPlace checks that a request leaves its place when its answer begins: many
// commands that go on delay no start. Requests that start nothing take no place at all.
func TestRunningCommandsTakeNoPlace(t *testing.T) {
	t.Parallel()
	const calls = 100
	begin := make(chan struct{})
	envd := func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, "no start")
			return
		}
		<-begin
		w.WriteHeader(http.StatusOK)
		must.Do(t, http.NewResponseController(w).Flush())
		<-r.Context().Done()
	}
	c := start(t)
	c.Add(Sandbox{ID: id, Dial: serve(t, map[int]http.HandlerFunc{protocol.PortEnvd: envd, 3000: envd})})
	places := int64(startsPerProcessor * runtime.GOMAXPROCS(0))
	inOrder := c.proxy.Transport.(roundTripper).starts
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithCancel(patience.Context(t))
	answers, begun := make(chan error), make(chan struct{})
	send := func(port string) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+processconnect.ProcessStartProcedure, http.NoBody)
		if err != nil {
			return err
		}
		for name, value := range by(id, port) {
			r.Header.Set(name, value)
		}
		resp, err := transport.RoundTrip(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		begun <- struct{}{}
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("got status %d", resp.StatusCode)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		return nil
	}
	for range calls {
		go func() { answers <- send("49983") }()
	}
	patience.Until(t, "all places are taken", func() bool { return !inOrder.places.TryAcquire(1) || release(inOrder) })
	if _, body := c.do(t, ask{method: http.MethodGet, path: processconnect.ProcessListProcedure, header: by(id, "49983")}); body != "no start" {
		t.Errorf("another request: got %q", body)
	}
	close(begin)
	for range calls {
		patience.Receive(t, "the beginning of an answer", begun)
	}
	patience.Until(t, "all places are free", func() bool { return inOrder.places.TryAcquire(places) })
	// With all places taken, the port of a program is reached at the same path.
	go func() { answers <- send("3000") }()
	patience.Receive(t, "the answer of a program", begun)
	inOrder.places.Release(places)
	cancel()
	for range calls + 1 {
		must.Do(t, patience.Receive(t, "the end of a request", answers))
	}
}

// release frees a place that a condition of a test has taken. It always returns false.
func release(s *starts) bool {
	s.places.Release(1)
	return false
}
