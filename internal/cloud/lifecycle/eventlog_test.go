package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/must"
)

func numbers(page []Event) []int64 {
	var all []int64
	for _, e := range page {
		all = append(all, e.Number)
	}
	return all
}

// TestEventLog checks the events that each call returns, before and after the log has dropped some.
func TestEventLog(t *testing.T) {
	t.Parallel()
	even := func(e *Event) bool { return e.Number%2 == 0 }
	all := func(*Event) bool { return true }
	log := newEventLog()
	for range 6 {
		log.add(Event{Type: EventUpdated})
	}
	for what, tt := range map[string]struct {
		match         func(*Event) bool
		offset, limit int
		ascending     bool
		want          []int64
	}{
		"latest":            {all, 0, 2, false, []int64{6, 5}},
		"oldest":            {all, 0, 2, true, []int64{1, 2}},
		"with an offset":    {all, 1, 2, false, []int64{5, 4}},
		"oldest, an offset": {all, 4, 9, true, []int64{5, 6}},
		"exactly":           {all, 0, 6, false, []int64{6, 5, 4, 3, 2, 1}},
		"matching, offset":  {even, 1, 9, false, []int64{4, 2}},
		"beyond":            {all, 6, 9, false, nil},
	} {
		page, last := log.Latest(tt.match, tt.offset, tt.limit, tt.ascending)
		if diff := cmp.Diff(tt.want, numbers(page)); diff != "" || last != 6 {
			t.Errorf("%s: last %d, events (-want +got):\n%s", what, last, diff)
		}
	}
	if page, next, missed := log.After(t.Context(), 3, even, 9); !slices.Equal(numbers(page), []int64{4, 6}) || next != 6 || missed != 0 {
		t.Errorf("after 3: got %v, next %d, %d missed", numbers(page), next, missed)
	}
	if first := log.First(); first != 0 {
		t.Errorf("a log that has all: the one before the first is %d", first)
	}
	for range maxEvents - 5 {
		log.add(Event{Type: EventUpdated})
	}
	if page, _ := log.Latest(all, 0, 1, true); log.First() != 1 || page[0].Number != 2 {
		t.Errorf("a full log: its oldest event is %d, and %d the one before", page[0].Number, log.First())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for from, want := range map[int64]int64{0: 1, 1: 0} { // a call that has missed events does not wait for one that matches
		if page, next, missed := log.After(ctx, from, func(*Event) bool { return false }, 9); len(page) != 0 || next != log.last || missed != want {
			t.Errorf("after %d: got %v, next %d, %d missed, want %d", from, numbers(page), next, missed, want)
		}
	}
}

// TestEventIDs checks which ids are ids of events, and whether they belong to the log.
func TestEventIDs(t *testing.T) {
	t.Parallel()
	log, other := newEventLog(), newEventLog()
	for range 3 {
		log.add(Event{})
	}
	log.ring = log.ring[1:] // one is dropped
	for id, want := range map[string]string{
		log.ID(0):                              "0 false true",
		log.ID(3):                              "3 false true",
		log.ID(4):                              "4 false false",
		other.ID(0):                            "1 true true",
		other.ID(9):                            "1 true true",
		log.ID(3)[:35]:                         "0 false false",
		log.ID(3) + "0":                        "0 false false",
		log.instance + strings.Repeat("x", 12): "0 false false",
		log.instance + "-00000000001":          "0 false false",
		"":                                     "0 false false",
	} {
		number, earlier, ok := log.Number(id)
		if got := fmt.Sprint(number, " ", earlier, " ", ok); got != want {
			t.Errorf("%q: got %s, want %s", id, got, want)
		}
	}
}

// TestEventsAreWhole checks every field of the events of a sandbox, and that long texts are cut.
func TestEventsAreWhole(t *testing.T) {
	t.Parallel()
	const most = maxHow + len("…")
	long := strings.Repeat("x", 2*most)
	r := New(Options{Store: store.Temporary(t.TempDir())})
	rec := &record{}
	rec.ID, rec.Template.ID, rec.Template.Build, rec.StartedAt = "id", long, "build", r.now()
	r.mu.Lock()
	r.records[rec.ID] = rec
	r.eventLocked(rec, Event{Type: EventKilled, Reason: Killed, Message: long})
	r.mu.Unlock()
	r.Refused("id", long, 443, "a rule")
	r.Refused("another", "a.test", 443, "a rule")
	r.mu.Lock()
	delete(r.records, rec.ID)
	r.mu.Unlock()
	page, _ := r.Events().Latest(func(*Event) bool { return true }, 0, 9, true)
	for i := range page {
		e := &page[i]
		if e.At.Before(rec.StartedAt) || len(e.Template) > most || len(e.Message) > most || len(e.Host) > most {
			t.Errorf("got the event %+v, want the time and short texts", e)
		}
		e.At, e.Template, e.Message, e.Host = rec.StartedAt, e.Template[:1], e.Message[:min(1, len(e.Message))], e.Host[:min(1, len(e.Host))]
	}
	want := []Event{
		{Number: 1, At: rec.StartedAt, Started: rec.StartedAt, Type: EventKilled, Sandbox: "id", Template: "x", Build: "build", Reason: Killed, Message: "x"},
		{Number: 2, At: rec.StartedAt, Started: rec.StartedAt, Type: EventRefused, Sandbox: "id", Template: "x", Build: "build", Host: "x", Port: 443, Rule: "a rule"},
	}
	if diff := cmp.Diff(want, page); diff != "" {
		t.Errorf("the events (-want +got):\n%s", diff)
	}
	must.Do(t, r.Close())
}
