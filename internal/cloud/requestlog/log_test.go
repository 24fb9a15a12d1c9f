package requestlog

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

func record(t *testing.T, l *Log, method, target string, h http.HandlerFunc) {
	t.Helper()
	defer func() {
		_ = recover() // a handler that cuts the connection panics
	}()
	l.Handler(h).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), method, target, nil))
}

func TestEntries(t *testing.T) {
	t.Parallel()
	var l Log
	record(t, &l, "GET", "/files?signature=secret", func(w http.ResponseWriter, r *http.Request) {
		Routed(r.Context(), "i1", 49983)
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = io.WriteString(w, "x")
	})
	record(t, &l, "POST", "/sandboxes", func(w http.ResponseWriter, r *http.Request) {
		Ignored(r.Context(), "a", "b")
		w.WriteHeader(http.StatusCreated)
	})
	record(t, &l, "GET", "/ws", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusSwitchingProtocols) })
	record(t, &l, "GET", "/cut", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	got := l.Entries()
	for i := range got {
		if got[i].Time.IsZero() || got[i].Duration < 0 {
			t.Errorf("got %+v, want a time and a duration", got[i])
		}
		got[i].Time, got[i].Duration = time.Time{}, 0
	}
	want := []Entry{
		{Method: "GET", Path: "/files", Status: 200, Sandbox: "i1", Port: 49983},
		{Method: "POST", Path: "/sandboxes", Status: 201, Ignored: []string{"a", "b"}},
		{Method: "GET", Path: "/ws", Status: 101},
		{Method: "GET", Path: "/cut"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// Outside a logged request both do nothing.
	Routed(t.Context(), "i1", 1)
	Ignored(t.Context(), "a")
}

func TestBounds(t *testing.T) {
	t.Parallel()
	var l Log
	for i := range size + 3 {
		record(t, &l, "GET", fmt.Sprintf("/%d", i), func(_ http.ResponseWriter, r *http.Request) {
			for range maxIgnored + 1 {
				Ignored(r.Context(), strings.Repeat("x", maxText+1))
			}
		})
	}
	got := l.Entries()
	if len(got) != size || got[0].Path != "/3" || got[size-1].Path != fmt.Sprintf("/%d", size+2) {
		t.Errorf("%d entries from %s to %s, want %d from %q to %q", len(got), got[0].Path, got[len(got)-1].Path, size, "/3", fmt.Sprintf("/%d", size+2))
	}
	if len(got[0].Ignored) != maxIgnored || len(got[0].Ignored[0]) != maxText {
		t.Errorf("%d fields of %d bytes, want %d of %d", len(got[0].Ignored), len(got[0].Ignored[0]), maxIgnored, maxText)
	}
}

// TestKeepsNothingElse checks that an entry does not keep its request in memory, because anybody
// can make a request long.
func TestKeepsNothingElse(t *testing.T) {
	t.Parallel()
	var l Log
	var path string
	record(t, &l, "GET", "/"+strings.Repeat("x", 1<<20), func(_ http.ResponseWriter, r *http.Request) { path = r.URL.Path })
	if got := l.Entries()[0].Path; unsafe.StringData(got) == unsafe.StringData(path) {
		t.Errorf("%d bytes are kept for %d", len(path), len(got))
	}
}
