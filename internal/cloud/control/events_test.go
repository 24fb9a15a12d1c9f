package control

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/protocol"
)

// events requests events and returns their types, and the id after which the next ones come.
func events(t *testing.T, s *service, path string) (types []string, next, missed string) {
	t.Helper()
	resp, text := s.do(t, "GET", path, "")
	var all []eventAnswer
	if err := json.Unmarshal([]byte(text), &all); err != nil || all == nil || resp.StatusCode != 200 {
		t.Fatalf("%s: got %d %s, want a list", path, resp.StatusCode, text)
	}
	for _, e := range all {
		whole := !slices.Contains([]string{e.ID, e.ExecutionID, e.BuildID}, "") && e.Version == "v2" && e.TeamID == teamID
		if !whole || time.Since(e.Time) > time.Hour {
			t.Errorf("%s: got %+v, want a whole event", path, e)
		}
		kind := e.Type[strings.LastIndexByte(e.Type, '.')+1:]
		if e.Data != nil {
			kind += " " + cmp.Or(e.Data.Reason+e.Data.Host, e.Data.Message)
		}
		types = append(types, kind)
	}
	return types, resp.Header.Get(protocol.HeaderEventsNext), resp.Header.Get(protocol.HeaderEventsMissed)
}

// TestEvents checks the events of a sandbox's life, their order and the pages.
func TestEvents(t *testing.T) {
	t.Parallel()
	s := start(t)
	first := s.mustCreate(t, `{"templateID":"base","timeout":60}`)
	second := s.mustCreate(t, `{"templateID":"base","timeout":60}`)
	s.must(t, "POST", "/sandboxes/"+first+"/timeout", `{"timeout":90}`, 204)
	s.must(t, "POST", "/sandboxes/"+first+"/refreshes", `{"duration":100}`, 204) // no event
	s.must(t, "PUT", "/sandboxes/"+first+"/network", `{"denyOut":["0.0.0.0/0"]}`, 204)
	s.must(t, "POST", "/sandboxes/"+first+"/snapshots", `{}`, 201)
	s.must(t, "POST", "/sandboxes/"+first+"/pause", `{"memory":false}`, 204)
	s.must(t, "POST", "/v2/sandboxes/"+first+"/connect", `{"timeout":60}`, 201)
	s.sandboxes.Refused(first, "denied.test", 443, "a rule")
	s.sandboxes.Refused("unknown", "denied.test", 443, "a rule")
	s.must(t, "DELETE", "/sandboxes/"+first, "", 204)

	want := []string{"created", "updated lifetime", "updated network", "checkpointed", "paused", "resumed", "refused denied.test", "killed killed"}
	got, next, _ := events(t, s, "/events/sandboxes/"+first+"?orderAsc=true")
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	slices.Reverse(want)
	if got, _, _ := events(t, s, "/events/sandboxes/"+first); !slices.Equal(got, want) {
		t.Errorf("the latest first: got %q, want %q", got, want)
	}
	if got, _, _ := events(t, s, "/events/sandboxes?offset=2&limit=2"); !slices.Equal(got, want[2:4]) {
		t.Errorf("a page: got %q, want %q", got, want[2:4])
	}
	if got, _, _ := events(t, s, "/events/sandboxes?types=sandbox.lifecycle.created&types=sandbox.lifecycle.killed"); len(got) != 3 {
		t.Errorf("of two types: got %q, want 3 events", got)
	}
	for _, id := range []string{second, strings.Repeat("x", 21)} {
		if got, _, _ := events(t, s, "/events/sandboxes/"+id+"?after="+next); len(got) != 0 {
			t.Errorf("%s: got %q, want none after the latest", id, got)
		}
	}

	// A request that waits receives the next event.
	come := make(chan []string)
	go func() {
		got, _, missed := events(t, s, "/events/sandboxes?wait=true&after="+next)
		come <- append(got, missed)
	}()
	s.must(t, "DELETE", "/sandboxes/"+second, "", 204)
	if got := <-come; !slices.Equal(got, []string{"killed killed", "0"}) {
		t.Errorf("after the wait: got %q, want the end of the second", got)
	}

	// The next event after one of an earlier server is the oldest one, and more may be missing.
	earlier := "00000000" + next[8:]
	got, _, missed := events(t, s, "/events/sandboxes?limit=1&after="+earlier)
	if !slices.Equal(got, []string{"created"}) || missed != "-1" {
		t.Errorf("after an earlier server: got %q, missed %s, want the first event and -1", got, missed)
	}

	old := "validation error: after: \"x\" is not the id of an event"
	for query, want := range map[string]string{
		"limit=0":       "validation error: limit must be a number from 1 to 100",
		"limit=101":     "validation error: limit must be a number from 1 to 100",
		"offset=-1":     "validation error: offset must be a number from 0 to 2147483647",
		"orderAsc=1":    "validation error: orderAsc must be true or false",
		"after=x":       old,
		"after=x&wait=": old,
		"after=" + next[:len(next)-12] + "00000000ffff": "validation error: after: \"" + next[:len(next)-12] + "00000000ffff\" is not the id of an event",
		"after=" + next[:len(next)-12] + "-00000000001": "validation error: after: \"" + next[:len(next)-12] + "-00000000001\" is not the id of an event",
		"types=other": "validation error: types: there are no events of type \"other\", only sandbox.lifecycle.created, sandbox.lifecycle.updated, sandbox.lifecycle.paused, sandbox.lifecycle.resumed, sandbox.lifecycle.checkpointed, sandbox.lifecycle.killed, sandbox.network.refused",
	} {
		s.fails(t, []failure{{"GET", "/events/sandboxes?" + query, ``, 400, want}})
	}
}

// TestMissedEvents checks that a reader learns how many events are no longer kept, and that it goes
// on with the oldest one.
func TestMissedEvents(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.mustCreate(t, `{"templateID":"base","timeout":60}`)
	_, next, _ := events(t, s, "/events/sandboxes")
	for i := range 10_010 {
		s.sandboxes.Refused(id, fmt.Sprintf("%d.test", i), 443, "a rule")
	}
	got, _, missed := events(t, s, "/events/sandboxes?limit=1&after="+next)
	if !slices.Equal(got, []string{"refused 10.test"}) || missed != "10" {
		t.Errorf("got %q and that %s are missing, want the tenth and 10", got, missed)
	}
	if got, _, _ := events(t, s, "/events/sandboxes"); len(got) != 10 {
		t.Errorf("without a limit: got %d events, want 10", len(got))
	}
	got, _, missed = events(t, s, "/events/sandboxes?limit=1&after="+protocol.EventsStart)
	if !slices.Equal(got, []string{"refused 10.test"}) || missed != "0" {
		t.Errorf("from the start: got %q and that %s are missing, want the oldest one and 0", got, missed)
	}
	if got, _, _ := events(t, s, "/events/sandboxes?limit=2&orderAsc=true&offset=9999"); !slices.Equal(got, []string{"refused 10009.test"}) {
		t.Errorf("the latest by its offset: got %q", got)
	}
}
