package api

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestListAllocations bounds the allocations of a list: 22 for each sandbox now, with those of the server in this process.
func TestListAllocations(t *testing.T) { // not parallel: it counts the allocations of the process
	const sandboxes, most = 100, 40
	var page strings.Builder
	for i := range sandboxes {
		fmt.Fprintf(&page, `,{"sandboxID":"i%019d","templateID":"base","alias":"base","clientID":"local","startedAt":"2026-01-02T03:04:05.678Z",`+
			`"endAt":"2026-01-02T03:09:05.678Z","state":"running","cpuCount":2,"memoryMB":512,"diskSizeMB":1024,"envdVersion":"0.5.0","metadata":{"a":"b"}}`, i)
	}
	answer := "[" + page.String()[1:] + "]"
	client := service(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	})
	got := testing.AllocsPerRun(10, func() {
		n := 0
		for _, err := range client.Sandboxes.List(t.Context(), nil) {
			must.Do(t, err)
			n++
		}
		if n != sandboxes {
			t.Errorf("%d sandboxes, want %d", n, sandboxes)
		}
	})
	if got > most*sandboxes {
		t.Errorf("a list of %d sandboxes takes %v allocations, over %d for each", sandboxes, got, most)
	}
}
