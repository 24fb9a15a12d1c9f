package control

import (
	"context"
	"testing"
	"time"
)

// TestSlowDisk checks that a slow disk does not delay the deletion of a paused sandbox so long
// that a client, which waits 10 seconds, believes that it was not deleted.
func TestSlowDisk(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.mustCreate(t, `{"templateID":"base"}`)
	s.must(t, "POST", "/sandboxes/"+id+"/pause", ``, 204)
	asked, gone := false, time.Now().Add(10*time.Second)
	s.freed = func(ctx context.Context) {
		asked = true
		end, ok := ctx.Deadline()
		if !ok || !end.Before(gone) {
			t.Errorf("the answer may come at %v, after the client has gone at %v", end, gone)
		}
	}
	s.must(t, "DELETE", "/sandboxes/"+id, ``, 204)
	if !asked {
		t.Error("the answer waits for no space at all")
	}
}
