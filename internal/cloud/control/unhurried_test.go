package control

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
)

// TestSavingHasNoDeadline checks that a request that saves a sandbox takes as long as its client
// waits, and that every other request has a deadline.
func TestSavingHasNoDeadline(t *testing.T) {
	t.Parallel()
	s := start(t)
	var bounded atomic.Bool
	s.fakes.Before = func(ctx context.Context) {
		_, set := ctx.Deadline()
		bounded.Store(set)
	}
	id := s.mustCreate(t, `{"templateID":"base"}`)
	if !bounded.Load() {
		t.Error("a create has no deadline")
	}
	if response, text := s.do(t, "POST", "/sandboxes/"+id+"/fork", `{}`); response.StatusCode != http.StatusCreated {
		t.Fatalf("fork: got %d %s, want 201", response.StatusCode, text)
	}
	if bounded.Load() {
		t.Error("a fork has a deadline of the server's")
	}
	for _, path := range []string{"pause", "fork", "snapshots"} {
		if response, text := s.do(t, "GET", "/sandboxes/"+id+"/"+path, ""); response.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("GET %s: got %d %s, want 405", path, response.StatusCode, text)
		}
	}
}
