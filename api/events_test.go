package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// maxAsked is more requests than any test of events needs.
const maxAsked = 2000

// eventClient returns a client for a service whose answers are those of answer. If answer returns
// true, the connection is cut. After maxAsked requests the service has gone.
func eventClient(t *testing.T, answer func(w *httptest.ResponseRecorder, r *http.Request) (cut bool)) *Client {
	t.Helper()
	var asked atomic.Int64
	c, err := NewClient(WithAPIKey(secret), WithTransport(tripper(func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		if asked.Add(1) > maxAsked { // a client that asks forever
			w.WriteHeader(http.StatusGone)
		} else if answer(w, r) {
			return nil, io.ErrUnexpectedEOF
		}
		response := w.Result()
		response.Request = r
		return response, nil
	})))
	must.Do(t, err)
	return c
}

type wireEvent struct {
	ID   string    `json:"id"`
	Time time.Time `json:"timestamp"`
}

func writeWireEvents(w http.ResponseWriter, numbers []int) {
	page := make([]wireEvent, len(numbers))
	for i, n := range numbers {
		page[i] = wireEvent{strconv.Itoa(n), time.Unix(int64(n), 0)}
	}
	_ = json.NewEncoder(w).Encode(page)
}

// TestEventsOfAService reads the events of a service without ids to go on from, and to which new events
// come between any two requests: each event comes once, in order.
func TestEventsOfAService(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		params     EventsParams
		first, new int // events at the beginning, and new ones before each request
		want       int // the oldest event that is wanted
		enough     int // the newest one after which the reader ends
	}{
		"all":           {EventsParams{Follow: true}, 250, 3, 1, 400},
		"last":          {EventsParams{Follow: true, Last: 250}, 1000, 7, 758, 1500},
		"many new ones": {EventsParams{Last: 250}, 1000, 90, 841, 1090},
		"few":           {EventsParams{Follow: true, Last: 5}, 2, 1, 1, 50},
		"none":          {EventsParams{Follow: true}, 0, 1, 1, 50},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				newest := test.first
				c := eventClient(t, func(w *httptest.ResponseRecorder, r *http.Request) bool {
					newest += test.new
					q := r.URL.Query()
					offset, _ := strconv.Atoi(q.Get("offset"))
					limit, _ := strconv.Atoi(q.Get("limit"))
					numbers := make([]int, newest)
					for i := range numbers {
						numbers[i] = i + 1
					}
					if q.Get("orderAsc") != "true" {
						slices.Reverse(numbers)
					}
					numbers = numbers[min(offset, newest):]
					writeWireEvents(w, numbers[:min(limit, len(numbers))])
					return false
				})
				next := test.want
				for e, err := range c.Sandboxes.Events(t.Context(), &test.params) {
					must.Do(t, err)
					if e.ID != strconv.Itoa(next) {
						t.Fatalf("got event %s, want %d", e.ID, next)
					}
					if next++; test.params.Follow && next > test.enough {
						break
					}
				}
				if next != test.enough+1 {
					t.Errorf("the events end before %d, want %d to be the last", next, test.enough)
				}
			})
		})
	}
}

// TestEventsAcrossARestart checks that a reader goes on with the events of a server that was started
// anew and reports that some may be missing, and that it ends if no server comes back.
func TestEventsAcrossARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin, lost := time.Now(), 0
		c := eventClient(t, func(w *httptest.ResponseRecorder, r *http.Request) bool {
			after := r.URL.Query().Get("after")
			header := func(missed int, next string) {
				w.Header().Set(protocol.HeaderEventsMissed, strconv.Itoa(missed))
				w.Header().Set(protocol.HeaderEventsNext, next)
			}
			past := time.Since(begin)
			switch {
			case past < time.Second && after == protocol.EventsStart:
				header(0, "a1")
				writeWireEvents(w, []int{1})
			case past < time.Second: // the server ends
				<-time.After(time.Second)
				return true
			case past < 9*time.Second:
				return true
			case after == "a1": // the next server has no events yet
				header(protocol.EventsMissedUnknown, "b0")
				writeWireEvents(w, nil)
			case after == "b0":
				header(4, "b1")
				writeWireEvents(w, []int{2})
			case after == "b1":
				header(5, "b2")
				writeWireEvents(w, []int{3})
			default:
				lost++
				return true
			}
			return false
		})
		var got []string
		var failed error
		for e, err := range c.Sandboxes.Events(t.Context(), &EventsParams{Follow: true}) {
			if failed = err; err == nil {
				got = append(got, fmt.Sprint(e.ID, " ", e.Missed))
			}
		}
		if want := []string{"1 0", "2 -1", "3 5"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if !errors.Is(failed, ErrUnavailable) || lost < 10 {
			t.Errorf("after %d requests in vain: %v, want %v", lost, failed, ErrUnavailable)
		}

		// The end of ctx ends the wait for a server.
		ctx, cancel := context.WithCancel(t.Context())
		begin = time.Now()
		time.AfterFunc(3*time.Second, cancel)
		for _, err := range c.Sandboxes.Events(ctx, &EventsParams{Follow: true}) {
			failed = err
		}
		if !errors.Is(failed, context.Canceled) {
			t.Errorf("got %v, want %v", failed, context.Canceled)
		}
	})
}

// TestLastEventsWhenTheClockIsSetBack reads events that are older than others, and yet have later times.
func TestLastEventsWhenTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	const all, setBack = 300, 100 // the clock is set back after this event
	c := eventClient(t, func(w *httptest.ResponseRecorder, r *http.Request) bool {
		offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
		var page []wireEvent
		for n := all - offset; n > max(0, all-offset-maxEventsPage); n-- {
			at := time.Unix(int64(n), 0)
			if n > setBack {
				at = at.Add(-time.Hour)
			}
			page = append(page, wireEvent{strconv.Itoa(n), at})
		}
		w.Header().Set(protocol.HeaderEventsNext, strconv.Itoa(all))
		_ = json.NewEncoder(w).Encode(page)
		return false
	})
	next := all - 249
	for e, err := range c.Sandboxes.Events(t.Context(), &EventsParams{Last: 250}) {
		must.Do(t, err)
		if e.ID != strconv.Itoa(next) {
			t.Fatalf("got event %s, want %d", e.ID, next)
		}
		next++
	}
	if next != all+1 {
		t.Errorf("the events end before %d, want %d to be the last", next, all)
	}
}

// TestEventsWhosePagesMove checks that an event comes once, even if the page after it begins with it again.
func TestEventsWhosePagesMove(t *testing.T) {
	t.Parallel()
	c := eventClient(t, func(w *httptest.ResponseRecorder, r *http.Request) bool {
		var numbers []int
		offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
		for n := max(1, offset); n <= min(offset+maxEventsPage, maxEventsPage+5); n++ {
			numbers = append(numbers, n)
		}
		writeWireEvents(w, numbers[:min(len(numbers), maxEventsPage)])
		return false
	})
	next := 1
	for e, err := range c.Sandboxes.Events(t.Context(), nil) {
		must.Do(t, err)
		if e.ID != strconv.Itoa(next) {
			t.Fatalf("got event %s, want %d", e.ID, next)
		}
		next++
	}
	if next != maxEventsPage+6 {
		t.Errorf("the events end before %d, want %d", next, maxEventsPage+6)
	}
}

// TestEventsRefused checks that a refusal ends the events with one error, whichever of the requests it
// answers, and that nothing is asked for that no service knows.
func TestEventsRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		params EventsParams
		known  bool // the service sends ids to go on from
		asked  int  // requests until the refusal
		want   error
	}{
		"all":                       {EventsParams{}, true, 1, ErrForbidden},
		"the next page":             {EventsParams{}, true, 2, ErrForbidden},
		"all by number":             {EventsParams{}, false, 2, ErrForbidden},
		"the next page by number":   {EventsParams{}, false, 3, ErrForbidden},
		"the last":                  {EventsParams{Last: 150}, true, 1, ErrForbidden},
		"the last, page 2":          {EventsParams{Last: 150}, true, 2, ErrForbidden},
		"further ones":              {EventsParams{Last: 100, Follow: true}, true, 2, ErrForbidden},
		"further ones by number":    {EventsParams{Last: 100, Follow: true}, false, 2, ErrForbidden},
		"fewer than none":           {EventsParams{Last: -1}, true, 0, ErrInvalidArgument},
		"more than there may be":    {EventsParams{Last: maxLastEvents + 1}, true, 0, ErrInvalidArgument},
		"as many as there may be":   {EventsParams{Last: maxLastEvents}, true, 1, ErrForbidden},
		"of something without id":   {EventsParams{SandboxID: "../a"}, true, 0, ErrInvalidArgument},
		"what is not an event":      {EventsParams{}, true, -1, nil},
		"what is not an event, too": {EventsParams{Last: 1}, true, -1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				c := eventClient(t, func(w *httptest.ResponseRecorder, _ *http.Request) bool {
					if asked++; tt.asked < 0 {
						_, _ = io.WriteString(w, `[{"id":7}]`)
						return false
					}
					if asked == tt.asked {
						w.WriteHeader(http.StatusForbidden)
						return false
					}
					if tt.known {
						w.Header().Set(protocol.HeaderEventsNext, strconv.Itoa(asked))
					}
					numbers := make([]int, maxEventsPage)
					for i := range numbers {
						numbers[i] = asked*maxEventsPage - i
					}
					writeWireEvents(w, numbers)
					return false
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				var failed []error
				for _, err := range c.Sandboxes.Events(ctx, &tt.params) {
					if err != nil {
						failed = append(failed, err)
					}
				}
				if tt.asked < 0 {
					asked = tt.asked
				}
				if len(failed) != 1 || tt.want != nil && !errors.Is(failed[0], tt.want) || asked != tt.asked {
					t.Errorf("got the errors %v after %d requests, want one with %v after %d", failed, asked, tt.want, tt.asked)
				}
			})
		})
	}
}

// TestEventsQuery checks what is asked for, and each field of an event.
func TestEventsQuery(t *testing.T) {
	t.Parallel()
	var asked []string
	c := eventClient(t, func(w *httptest.ResponseRecorder, r *http.Request) bool {
		asked = append(asked, r.URL.Path+"?"+r.URL.RawQuery)
		w.Header().Set(protocol.HeaderEventsNext, "n")
		_, _ = io.WriteString(w, `[{"id":"1","type":"sandbox.lifecycle.killed","timestamp":"2026-01-02T03:04:05.678Z","sandboxId":"i1","sandboxTemplateId":"t","sandboxBuildId":"b",`+
			`"sandboxExecutionId":"x","eventData":{"set_timeout":"2026-01-02T03:04:05.678Z","reason":"r","message":"m","host":"h","port":9,"rule":"u"}}]`)
		return false
	})
	want := Event{"1", EventKilled, moment, "i1", "t", "b", "x", "r", "m", moment, "h", 9, "u", 0}
	for _, p := range []*EventsParams{nil, {SandboxID: "i1", Types: []EventType{EventKilled, EventPaused}}, {Last: 1}} {
		n := 0
		for e, err := range c.Sandboxes.Events(t.Context(), p) {
			must.Do(t, err)
			if n++; e != want {
				t.Errorf("got %+v, want %+v", e, want)
			}
		}
		if n != 1 {
			t.Errorf("got %d events, want 1", n)
		}
	}
	const all, types = "after=" + protocol.EventsStart + "&limit=100", "&types=sandbox.lifecycle.killed&types=sandbox.lifecycle.paused"
	if want := []string{"/events/sandboxes?" + all + "&wait=false", "/events/sandboxes/i1?" + all + types + "&wait=false", "/events/sandboxes?limit=100&offset=0"}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
}

// TestEventsEndWithTheirContext checks that the end of ctx ends the wait for new events of a service that does
// not wait for them itself.
func TestEventsEndWithTheirContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := eventClient(t, func(w *httptest.ResponseRecorder, _ *http.Request) bool {
			writeWireEvents(w, nil)
			return false
		})
		ctx, cancel := context.WithTimeout(t.Context(), pollEvents*5/2)
		defer cancel()
		began := time.Now()
		var failed error
		for _, failed = range c.Sandboxes.Events(ctx, &EventsParams{Follow: true}) {
			break
		}
		if took := time.Since(began); !errors.Is(failed, context.DeadlineExceeded) || took != pollEvents*5/2 {
			t.Errorf("got %v after %v, want the end of ctx after %v", failed, took, pollEvents*5/2)
		}
	})
}
