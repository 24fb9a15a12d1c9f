package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// keptLog is a service with the log of the sandbox i1.
type keptLog struct {
	mu      sync.Mutex
	entries []LogEntry
	queries []string
	ended   bool
}

func (k *keptLog) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r.URL.Path == "/sandboxes/i1" {
		if k.ended {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write([]byte(`{"code":404,"message":"no sandbox i1"}`))
		return
	}
	query := r.URL.Query()
	k.queries = append(k.queries, r.URL.Path+"?"+r.URL.RawQuery)
	limit := maxLogPage
	if text := query.Get("limit"); text != "" {
		limit, _ = strconv.Atoi(text)
	}
	all := slices.Clone(k.entries)
	if ms, err := strconv.ParseInt(query.Get("cursor"), 10, 64); err == nil {
		all = slices.DeleteFunc(all, func(e LogEntry) bool { return e.Time.Before(time.UnixMilli(ms)) })
	}
	if query.Get("direction") == "backward" {
		slices.Reverse(all)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"logs": all[:min(limit, len(all))]})
}

// add appends entries of one moment, which count upwards.
func (k *keptLog) add(at time.Time, n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for range n {
		k.entries = append(k.entries, LogEntry{Time: at, Level: LogInfo, Message: fmt.Sprint(len(k.entries)), Fields: map[string]string{}})
	}
}

var moment = time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC)

// all collects what an iterator yields, which must be counted from first on.
func all(t *testing.T, c *Client, first int, p *LogParams) (n int) {
	t.Helper()
	for e, err := range c.Sandboxes.Logs(t.Context(), "i1", p) {
		must.Do(t, err)
		if want := fmt.Sprint(first + n); e.Message != want {
			t.Fatalf("got entry %s, want %s", e.Message, want)
		}
		n++
	}
	return n
}

// Pages begin with whole milliseconds, and no entry is missed or comes twice, however
// many there are in one.
func TestLogsHasEachEntryOnce(t *testing.T) {
	t.Parallel()
	k := &keptLog{}
	c := service(t, k.ServeHTTP)
	if n := all(t, c, 0, nil); n != 0 {
		t.Errorf("got %d entries of an empty log, want none", n)
	}
	for i := range 2600 {
		k.add(moment.Add(time.Duration(i/3)*time.Millisecond+time.Duration(i%3)), 1)
	}
	if n := all(t, c, 0, nil); n != 2600 {
		t.Errorf("got %d entries, want 2600", n)
	}
	if n := all(t, c, 3*100, &LogParams{From: moment.Add(100*time.Millisecond + 500)}); n != 2600-3*100 {
		t.Errorf("got %d entries from a time on, want %d", n, 2600-3*100)
	}
	for _, tail := range []int{1, 2, 3, 1000} {
		if n := all(t, c, 2600-tail, &LogParams{Tail: tail}); n != tail {
			t.Errorf("got %d entries, want the last %d", n, tail)
		}
	}
}

// TestLogsOfOneMillisecond checks that entries of one millisecond beyond the size of a page are
// left out, and that later entries follow.
func TestLogsOfOneMillisecond(t *testing.T) {
	t.Parallel()
	k := &keptLog{}
	c := service(t, k.ServeHTTP)
	k.add(moment, maxLogPage+500)
	k.add(moment.Add(time.Second), 1)
	var last LogEntry
	n := 0
	for e, err := range c.Sandboxes.Logs(t.Context(), "i1", nil) {
		must.Do(t, err)
		last, n = e, n+1
	}
	if n != maxLogPage+1 || last.Message != fmt.Sprint(maxLogPage+500) {
		t.Errorf("got %d entries up to %v, want %d up to the last", n, last, maxLogPage+1)
	}
}

// served returns a client of the log, for a bubble of synctest.
func (k *keptLog) served(t *testing.T) *Client {
	t.Helper()
	return eventClient(t, func(w *httptest.ResponseRecorder, r *http.Request) bool {
		k.ServeHTTP(w, r)
		return false
	})
}

func TestFollowedLogs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &keptLog{}
		c := k.served(t)
		k.add(moment, 3)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // a follower that misses an entry waits for it
		defer cancel()
		n := 1 // the first one is not wanted
		for e, err := range c.Sandboxes.Logs(ctx, "i1", &LogParams{Follow: true, Tail: 2}) {
			must.Do(t, err)
			if want := fmt.Sprint(n); e.Message != want {
				t.Fatalf("got entry %s, want %s", e.Message, want)
			}
			switch n++; n {
			case 3:
				k.add(moment.Add(1), 2) // of the same millisecond
			case 5:
				k.ended = true
				k.add(moment.Add(time.Second), 1)
			}
		}
		if n != 6 {
			t.Errorf("it ended with %d entries, want 6", n)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		k.ended = false
		for _, err := range c.Sandboxes.Logs(ctx, "i1", &LogParams{Follow: true}) {
			if n++; n == 12 {
				cancel()
			}
			if n > 12 && !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want %v", err, context.Canceled)
			}
		}
		if n != 13 {
			t.Errorf("got %d items, want 6 entries and one error more", n)
		}
	})
}

// TestFollowedLogOfOneMillisecond checks that entries which come one by one into the millisecond of the
// latest entry each come once, and that more of them than a page has do not hold up later ones.
func TestFollowedLogOfOneMillisecond(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		first int // entries at the beginning
		want  int // entries that come until the one of the next millisecond: those beyond a page do not
	}{{1, 5}, {maxLogPage - 4, maxLogPage}, {maxLogPage - 3, maxLogPage}, {maxLogPage, maxLogPage}} {
		synctest.Test(t, func(t *testing.T) {
			k := &keptLog{}
			c := k.served(t)
			k.add(moment, tt.first)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range 4 {
					<-time.After(2 * followEvery)
					k.add(moment.Add(1), 1)
				}
				<-time.After(2 * followEvery)
				k.add(moment.Add(time.Millisecond), 1)
			}()
			n := 0
			for e, err := range c.Sandboxes.Logs(ctx, "i1", &LogParams{Follow: true}) {
				must.Do(t, err)
				if !e.Time.Before(moment.Add(time.Millisecond)) {
					break
				}
				n++
			}
			if n != tt.want {
				t.Errorf("from %d entries on: got %d of one millisecond, want %d", tt.first, n, tt.want)
			}
			<-done
		})
	}
}

// TestFollowedLogFails checks that a refusal ends a followed log, whichever request it answers, and that the
// end of ctx ends the wait for further entries.
func TestFollowedLogFails(t *testing.T) {
	t.Parallel()
	const waits = followEvery * 5 / 2
	for refused, want := range map[string]error{
		"/v2/sandboxes/i1/logs": ErrForbidden, "/sandboxes/i1": ErrForbidden, "": context.DeadlineExceeded,
	} {
		for _, p := range []LogParams{{Follow: true}, {Follow: true, Tail: 1}} {
			synctest.Test(t, func(t *testing.T) {
				c := eventClient(t, func(w *httptest.ResponseRecorder, r *http.Request) bool {
					if r.URL.Path == refused {
						w.WriteHeader(http.StatusForbidden)
					}
					_, _ = w.WriteString(`{}`)
					return false
				})
				ctx, cancel := context.WithTimeout(t.Context(), waits)
				defer cancel()
				began := time.Now()
				var failed []error
				for _, err := range c.Sandboxes.Logs(ctx, "i1", &p) {
					failed = append(failed, err)
				}
				took := time.Since(began)
				after := map[bool]time.Duration{true: waits, false: 0}[refused == ""]
				if len(failed) != 1 || !errors.Is(failed[0], want) || took != after {
					t.Errorf("%q refused, %+v: got %v after %v, want %v", refused, p, failed, took, want)
				}
			})
		}
	}
}

func TestLogsRefuses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		id, answer, want string
		p                *LogParams
	}{
		"id":           {"../x", `{}`, "not the id of a sandbox", nil},
		"tail":         {"i1", `{}`, "the last 1001 entries", &LogParams{Tail: 1001}},
		"negative":     {"i1", `{}`, "the last -1 entries", &LogParams{Tail: -1}},
		"null":         {"i1", `{"logs":[null]}`, "an entry of a log that is null", nil},
		"wrong time":   {"i1", `{"logs":[{"timestamp":"2026-01-01T00:00:00Z"}]}`, "older than was asked for", &LogParams{From: moment}},
		"wrong fields": {"i1", `{"logs":[{"timestamp":7}]}`, "not the expected JSON", nil},
	} {
		c := service(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(tt.answer)) })
		n := 0
		for _, err := range c.Sandboxes.Logs(t.Context(), tt.id, tt.p) {
			if n++; err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: got %v, want %q in it", name, err, tt.want)
			}
		}
		if n != 1 {
			t.Errorf("%s: got %d items, want one error", name, n)
		}
	}
}

func TestLogsQuery(t *testing.T) {
	t.Parallel()
	k := &keptLog{}
	c := service(t, k.ServeHTTP)
	all(t, c, 0, nil)
	all(t, c, 0, &LogParams{From: moment, Level: LogWarn, Search: "a b"})
	all(t, c, 0, &LogParams{Tail: 7})
	want := []string{
		"/v2/sandboxes/i1/logs?direction=forward",
		"/v2/sandboxes/i1/logs?cursor=1767323045678&direction=forward&level=warn&search=a+b",
		"/v2/sandboxes/i1/logs?direction=backward&limit=7",
	}
	if diff := cmp.Diff(want, k.queries); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestTailBeginsAtFrom checks that entries before From are not among the newest ones.
func TestTailBeginsAtFrom(t *testing.T) {
	t.Parallel()
	k := &keptLog{}
	c := service(t, k.ServeHTTP)
	k.add(moment.Add(-time.Microsecond), 2)
	k.add(moment, 1)
	k.add(moment.Add(time.Hour), 1)
	for tail, want := range map[int]int{1: 1, 2: 2, 3: 2, 4: 2, maxLogPage: 2} {
		if got := all(t, c, 4-want, &LogParams{From: moment, Tail: tail}); got != want {
			t.Errorf("the last %d: got %d entries, want %d", tail, got, want)
		}
	}
}

const sample = `{"timestamp":"2026-01-02T03:04:05.678Z","timestampUnix":1767323045,"cpuCount":2,"cpuUsedPct":12.5,"memUsed":1,"memTotal":2,"memCache":3,"diskUsed":4,"diskTotal":5}`

var sampled = Usage{Time: moment, CPUs: 2, CPUPercent: 12.5, MemoryUsedBytes: 1, MemoryTotalBytes: 2, MemoryCacheBytes: 3, DiskUsedBytes: 4, DiskTotalBytes: 5}

func TestMetrics(t *testing.T) {
	t.Parallel()
	var asked string
	c := service(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.Path + "?" + r.URL.RawQuery
		_, _ = w.Write([]byte("[" + sample + "]"))
	})
	for want, p := range map[string]*MetricsParams{
		"/sandboxes/i1/metrics?":                                nil,
		"/sandboxes/i1/metrics?start=1767323045":                {From: moment},
		"/sandboxes/i1/metrics?end=1767323045":                  {Until: moment},
		"/sandboxes/i1/metrics?end=1767323046&start=1767323045": {From: moment, Until: moment.Add(time.Second)},
	} {
		got, err := c.Sandboxes.Metrics(t.Context(), "i1", p)
		must.Do(t, err)
		if diff := cmp.Diff([]Usage{sampled}, got); diff != "" || asked != want {
			t.Errorf("asked %s, want %s; (-want +got):\n%s", asked, want, diff)
		}
	}
}

func TestMetricsOf(t *testing.T) {
	t.Parallel()
	var asked []int
	c := service(t, func(w http.ResponseWriter, r *http.Request) {
		ids := strings.Split(r.URL.Query().Get("sandbox_ids"), ",")
		asked = append(asked, len(ids))
		fmt.Fprintf(w, `{"sandboxes":{%q:%s}}`, ids[0], sample)
	})
	ids := make([]string, 250)
	for i := range ids {
		ids[i] = fmt.Sprint("i", i)
	}
	got, err := c.Sandboxes.MetricsOf(t.Context(), ids)
	must.Do(t, err)
	if diff := cmp.Diff(map[string]Usage{"i0": sampled, "i100": sampled, "i200": sampled}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{100, 100, 50}, asked); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, err := c.Sandboxes.MetricsOf(t.Context(), nil); err != nil || len(got) > 0 || len(asked) > 3 {
		t.Errorf("got %v, %v of none, want nothing, and nothing asked", got, err)
	}
	if _, err := c.Sandboxes.MetricsOf(t.Context(), []string{"a,b"}); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("got %v, want %v", err, ErrInvalidArgument)
	}
	null := service(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"sandboxes":{"i1":null}}`)) })
	if got, err := null.Sandboxes.MetricsOf(t.Context(), []string{"i1"}); err == nil {
		t.Errorf("got %v of a null, want an error", got)
	}
}
