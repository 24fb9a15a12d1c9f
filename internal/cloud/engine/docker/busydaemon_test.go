//go:build linux

package docker

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/moby/moby/client"
	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// withDaemon returns an engine whose daemon answers as handle does.
func withDaemon(t *testing.T, handle http.HandlerFunc) *Engine {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	daemon, err := client.New(client.WithHost("tcp://"+server.Listener.Addr().String()), client.WithAPIVersion("1.44"))
	must.Do(t, err)
	t.Cleanup(func() { daemon.Close() })
	return &Engine{client: daemon, options: Options{Logger: slog.New(slog.DiscardHandler)}}
}

// TestAwaitExitOfAClosedSandbox checks that no goroutine is left, of the engine or of the
// daemon's client, when a container ends in the moment in which its sandbox is closed.
func TestAwaitExitOfAClosedSandbox(t *testing.T) {
	before := goleak.IgnoreCurrent()
	asked, end := make(chan struct{}), make(chan struct{})
	e := withDaemon(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		asked <- struct{}{}
		<-end
		_, _ = io.WriteString(w, `{"StatusCode": 7}`)
	})
	for i := range 400 {
		ctx, cancel := context.WithCancel(t.Context())
		status := e.awaitExit(ctx, "sandbox")
		patience.Receive(t, "the daemon to be asked", asked)
		end <- struct{}{}
		for range i * 100 { // closed a little later each time
			runtime.Gosched()
		}
		cancel()
		select {
		case got := <-status:
			if got != 7 {
				t.Errorf("got the exit status %d, want 7", got)
			}
		default: // it was closed first
		}
	}
	e.client.Close()
	if err := goleak.Find(before, goleak.IgnoreAnyFunction("net/http/httptest.(*Server).goServe.func1"),
		goleak.IgnoreAnyFunction("net/http.(*conn).serve"), goleak.IgnoreAnyFunction("net/http.(*connReader).backgroundRead")); err != nil {
		t.Error(err)
	}
}

// TestFreezeAgain checks that a daemon that could not freeze a container is asked again,
// some times, and after any other failure not.
func TestFreezeAgain(t *testing.T) {
	t.Parallel()
	const busy = `{"message":"Cannot pause container: OCI runtime pause failed: unable to freeze: unknown"}`
	for name, tt := range map[string]struct {
		failures int
		message  string
		asked    int
		failed   string
	}{
		"once":    {1, busy, 2, ""},
		"always":  {pauses, busy, pauses, "unable to freeze"},
		"another": {1, `{"message":"no space left on device"}`, 1, "no space left"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := 0
			e := withDaemon(t, func(w http.ResponseWriter, _ *http.Request) {
				asked++
				if asked > tt.failures {
					w.WriteHeader(http.StatusNoContent)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusInternalServerError)
				_, _ = io.WriteString(w, tt.message)
			})
			err := e.pause(t.Context(), "sandbox")
			if (tt.failed == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.failed) {
				t.Errorf("pause: got %v, want %q", err, tt.failed)
			}
			if asked != tt.asked {
				t.Errorf("the daemon was asked %d times, want %d", asked, tt.asked)
			}
		})
	}
}
