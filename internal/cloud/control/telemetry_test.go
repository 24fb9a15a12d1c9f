package control

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/telemetry"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// ask sends a GET and decodes its answer.
func ask[T any](t *testing.T, s *service, path string) (got T) {
	t.Helper()
	response, body := s.do(t, "GET", path, "")
	if response.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: got %s %s, want 200", path, response.Status, body)
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatalf("GET %s: %v in %s", path, err, body)
	}
	return got
}

type firstLogs struct {
	Logs       []struct{ Timestamp, Line string }
	LogEntries []sandboxEntry
}

type secondLogs struct{ Logs []sandboxEntry }

func (l secondLogs) messages() string {
	all := make([]string, len(l.Logs))
	for i, e := range l.Logs {
		all[i] = e.Message
	}
	return strings.Join(all, ",")
}

func TestLogs(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.mustCreate(t, `{"templateID":"base"}`)
	if got := ask[firstLogs](t, s, "/sandboxes/"+id+"/logs"); got.Logs == nil || got.LogEntries == nil || len(got.Logs) > 0 {
		t.Errorf("got %+v of a sandbox without a log, want two empty lists", got)
	}
	s.kept.Open(id)
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		s.kept.Add(id, telemetry.Entry{Level: level, Logger: "lifecycle", Message: "a " + level.String(), Fields: []telemetry.Field{{Name: "n", Value: "1"}, {Name: "level", Value: "mine"}}})
		<-time.After(2 * time.Millisecond) // the cursor counts in milliseconds
	}

	first := ask[firstLogs](t, s, "/sandboxes/"+id+"/logs")
	if len(first.Logs) != 4 || len(first.LogEntries) != 4 {
		t.Fatalf("got %+v, want 4 entries, twice", first)
	}
	var line map[string]string
	must.Do(t, json.Unmarshal([]byte(first.Logs[2].Line), &line))
	if diff := cmp.Diff(map[string]string{"level": "warn", "logger": "lifecycle", "message": "a WARN", "n": "1"}, line); diff != "" {
		t.Errorf("line (-want +got):\n%s", diff)
	}
	third := first.LogEntries[2]
	if diff := cmp.Diff(sandboxEntry{third.Timestamp, "a WARN", "warn", map[string]string{"logger": "lifecycle", "n": "1", "level": "mine"}}, third); diff != "" {
		t.Errorf("entry (-want +got):\n%s", diff)
	}
	at := third.Timestamp.UnixMilli()

	for query, want := range map[string]string{
		"": "a ERROR,a WARN,a INFO,a DEBUG",
		"?limit=2&direction=backward&level=&search=":        "a ERROR,a WARN",
		"?direction=forward&limit=3":                        "a DEBUG,a INFO,a WARN",
		"?level=warn":                                       "a ERROR,a WARN",
		"?level=debug&search=inf":                           "a INFO",
		fmt.Sprintf("?cursor=%d&direction=forward", at):     "a WARN,a ERROR",
		fmt.Sprintf("?cursor=%d&level=info", at):            "a INFO",
		"?search=" + strings.Repeat("%C3%A4", maxSearch):    "",
		fmt.Sprintf("?cursor=%d&direction=forward", at<<10): "",
	} {
		if got := ask[secondLogs](t, s, "/v2/sandboxes/"+id+"/logs"+query).messages(); got != want {
			t.Errorf("%s: got %s, want %s", query, got, want)
		}
	}
	for query, want := range map[string]string{
		fmt.Sprintf("?start=%d", at): "a WARN,a ERROR", "?limit=1": "a DEBUG", "?limit=5000": "a DEBUG,a INFO,a WARN,a ERROR",
	} {
		if got := (secondLogs{ask[firstLogs](t, s, "/sandboxes/"+id+"/logs"+query).LogEntries}).messages(); got != want {
			t.Errorf("first generation, %s: got %s, want %s", query, got, want)
		}
	}

	s.must(t, "DELETE", "/sandboxes/"+id, "", http.StatusNoContent)
	if got := ask[secondLogs](t, s, "/v2/sandboxes/"+id+"/logs").Logs; len(got) != 4 {
		t.Errorf("got %+v after the end, want what was said", got)
	}
	s.must(t, "GET", "/sandboxes/"+id+"/metrics", "", http.StatusNotFound)
}

// TestFollowedLogs checks that a client of the first generation misses no entry when it continues
// one millisecond after its last entry. This must be true for any distribution of entries over
// milliseconds and pages.
func TestFollowedLogs(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.mustCreate(t, `{"templateID":"base"}`)
	s.kept.Open(id)
	const many = 4000
	go func() {
		for i := range many {
			s.kept.Add(id, telemetry.Entry{Level: slog.LevelInfo, Message: fmt.Sprint(i)})
			if i%7 == 0 {
				<-time.After(100 * time.Microsecond)
			}
		}
	}()
	got, from := 0, int64(0)
	patience.Until(t, fmt.Sprintf("%d entries have come", many), func() bool {
		for _, e := range ask[firstLogs](t, s, fmt.Sprintf("/sandboxes/%s/logs?start=%d&limit=500", id, from)).LogEntries {
			if e.Message != fmt.Sprint(got) {
				t.Fatalf("got %s, want %d", e.Message, got)
			}
			got, from = got+1, e.Timestamp.UnixMilli()+1
		}
		return got == many
	})
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	s := start(t)
	id, other := s.mustCreate(t, `{"templateID":"base"}`), s.mustCreate(t, `{"templateID":"base"}`)
	if got := ask[[]metric](t, s, "/sandboxes/"+id+"/metrics"); got == nil || len(got) > 0 {
		t.Errorf("got %#v of a sandbox that was never measured, want an empty list", got)
	}
	s.kept.Open(id)
	began := time.Now().Truncate(time.Second)
	s.kept.Run(id, 0, func() (engine.Usage, bool) { return engine.Usage{Memory: 3, Cache: 4, Disk: 5, DiskTotal: 6}, true })
	got := ask[[]metric](t, s, "/sandboxes/"+id+"/metrics")
	if len(got) != 1 || got[0].Timestamp.Before(began) || got[0].Timestamp.Unix() != got[0].TimestampUnix {
		t.Fatalf("got %+v, want one after %v", got, began)
	}
	want := metric{got[0].Timestamp, got[0].TimestampUnix, 2, 0, 3, 2048 << 20, 4, 5, 6}
	if got[0] != want {
		t.Errorf("got %+v, want %+v", got[0], want)
	}
	at := got[0].TimestampUnix
	for query, want := range map[string]int{
		fmt.Sprintf("?start=%d&end=%d", at, at): 1, fmt.Sprintf("?start=%d", at+1000): 0, fmt.Sprintf("?end=%d", at-1): 0, "?start=0": 1,
	} {
		if got := ask[[]metric](t, s, "/sandboxes/"+id+"/metrics"+query); len(got) != want {
			t.Errorf("%s: got %+v, want %d", query, got, want)
		}
	}
	contained := s.mustCreate(t, `{"templateID":"base-docker"}`)
	s.kept.Open(contained)
	s.kept.Run(contained, 0, func() (engine.Usage, bool) { return engine.Usage{Memory: 3}, true })
	of := ask[struct{ Sandboxes map[string]metric }](t, s, "/sandboxes/metrics?sandbox_ids="+contained).Sandboxes[contained]
	if got := ask[[]metric](t, s, "/sandboxes/"+contained+"/metrics"); len(got) != 1 || got[0] != of || of.MemTotal != 512<<20 || of.CPUCount != 1 {
		t.Errorf("of another engine: got %+v and %+v, want what its sandboxes have", got, of)
	}
	bulk := ask[struct{ Sandboxes map[string]metric }](t, s, "/sandboxes/metrics?sandbox_ids="+id+","+other+",inobody")
	if _, ok := bulk.Sandboxes[id]; !ok || len(bulk.Sandboxes) != 1 {
		t.Errorf("got %+v in bulk, want that of %s alone", bulk, id)
	}
}

func TestTelemetryInput(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.mustCreate(t, `{"templateID":"base"}`)
	for path, want := range map[string]string{
		"/sandboxes/" + id + "/logs?start=yesterday":                                           "start must be a time in milliseconds",
		"/sandboxes/" + id + "/logs?start=-1":                                                  "start must be",
		"/sandboxes/" + id + "/logs?limit=0":                                                   "limit must be",
		"/sandboxes/" + id + "/logs?limit=many":                                                "limit must be",
		"/v2/sandboxes/" + id + "/logs?limit=1001":                                             "limit must be between 1 and 1000",
		"/v2/sandboxes/" + id + "/logs?cursor=1e3":                                             "cursor must be",
		"/v2/sandboxes/" + id + "/logs?direction=up":                                           "direction must be",
		"/v2/sandboxes/" + id + "/logs?level=WARN":                                             "level must be",
		"/v2/sandboxes/" + id + "/logs?search=" + strings.Repeat("x", 257):                     "search must have at most 256",
		"/v2/sandboxes/" + id + "/logs?a=%zz":                                                  "the query cannot be parsed",
		"/v2/sandboxes/a-b-c/logs":                                                             "Invalid sandbox ID",
		"/sandboxes/" + id + "/metrics?start=2&end=1":                                          "start must not be after end",
		"/sandboxes/" + id + "/metrics?start=now":                                              "start must be a time in seconds",
		"/sandboxes/" + id + "/metrics?end=99999999999999999999":                               "end must be",
		"/sandboxes/metrics":                                                                   "sandbox_ids must be",
		"/sandboxes/metrics?sandbox_ids=" + id + ",":                                           "sandbox_ids must be",
		"/sandboxes/metrics?sandbox_ids=../" + id:                                              "sandbox_ids must be",
		"/sandboxes/metrics?sandbox_ids=" + strings.TrimSuffix(strings.Repeat("i,", 101), ","): "1 to 100 sandboxes",
	} {
		response, body := s.do(t, "GET", path, "")
		if response.StatusCode != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%.120s: got %s %s, want 400 and %q", path, response.Status, body, want)
		}
	}
}
