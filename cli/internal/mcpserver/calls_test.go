package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
)

// TestWholeCalls checks the answer to a call of each end, that the call counts for as long as it runs, and that nothing of it
// stays.
func TestWholeCalls(t *testing.T) {
	t.Parallel()
	gone := &sandbox.GoneError{ID: ownBox}
	for name, tt := range map[string]struct {
		id      string
		ends    bool // the server
		err     error
		host    string // that the sandbox wants to reach; the user refuses those that begin with "no"
		isError bool
		notes   string
		left    bool // the sandbox is held afterwards
	}{
		"it works":             {id: ownBox, notes: "[sandbox " + ownBox + " · 1s]", left: true},
		"it fails":             {id: ownBox, err: errors.New("it broke"), isError: true, notes: "[error: it broke]\n[sandbox " + ownBox + " · 1s]", left: true},
		"the user allows":      {id: ownBox, host: "yes", notes: "[sandbox " + ownBox + " · 1s]", left: true},
		"the user refuses":     {id: ownBox, host: "no", notes: "[sandbox " + ownBox + " · 1s]\n[no:80 could not be reached: nobody allowed it]", left: true},
		"the sandbox ends":     {id: ownBox, err: fmt.Errorf("run: %w", gone), isError: true, notes: "Its files and variables are lost; a call without \"sandbox\" goes on in a new one]\n[sandbox " + ownBox + " · 1s]"},
		"another's":            {id: foreignBox, isError: true, notes: "[error: " + errNotYours.Error() + "]"},
		"the server ends":      {id: ownBox, ends: true, notes: "[sandbox " + ownBox + " · 0s]", left: true},
		"without a name":       {notes: "[sandbox " + givenBox + " · 1s]", left: true},
		"an operator's, by id": {id: givenBox, notes: "[sandbox " + givenBox + " · 1s]", left: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			h, _ := newPretended(t, nil)
			life, end := context.WithCancel(t.Context())
			defer end()
			e := &endpoint{Server: &Server{config: *h.config, sandboxes: h, life: life}}
			session := new(sdk.ServerSession)
			var box *held
			var ctx context.Context
			ask := func(_ context.Context, text string) bool { return strings.Contains(text, "reach yes") }
			result := e.run(t.Context(), &sdk.CallToolRequest{Session: session}, tt.id, ask, func(during context.Context, c *call) error {
				ctx, box = during, c.box //nolint:fatcontext // to look at it
				if calls := heldBy(h)[box.ID()]; calls != 1 || c.server != e || c.session != session || during.Value(questionKey{}) == nil {
					t.Errorf("%s: %d calls use the sandbox, want this one", name, calls)
				}
				if tt.host != "" && box.asked.host(during, tt.host, 80) != (tt.host == "yes") {
					t.Errorf("%s: the user was not asked", name)
				}
				if tt.ends {
					end()
				}
				select {
				case <-during.Done():
				case <-time.After(time.Second):
				}
				return tt.err
			})
			got := pieces(result)
			if got.isError != tt.isError || !strings.HasSuffix(got.notes, tt.notes) {
				t.Errorf("%s: got an error: %v, with %q, want %q", name, got.isError, got.notes, tt.notes)
			}
			if box != nil {
				if calls, left := heldBy(h)[box.ID()]; calls != 0 || left != tt.left || len(box.asked.askers) > 0 {
					t.Errorf("%s: afterwards %d calls use the sandbox, and it is held: %v", name, calls, left)
				}
				if ctx.Err() == nil || tt.ends != errors.Is(context.Cause(ctx), errEnding) {
					t.Errorf("%s: the context of the call ended by %v", name, context.Cause(ctx))
				}
			}
			must.Do(t, h.close())
		})
	}
}

// TestSandboxOfACall checks which sandbox a call has that names none.
func TestSandboxOfACall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _ := newPretended(t, nil)
		for _, tt := range []struct {
			name            string
			sessions, given bool
			same            bool // as before, of the same session
		}{{"the operator's", false, true, true}, {"the operator's, in sessions", true, true, true}, {"of the session", true, false, true}, {"without sessions", false, false, false}} {
			h.config.Sandboxes = map[bool][]string{true: {givenBox}}[tt.given]
			e := &endpoint{Server: &Server{config: *h.config, sandboxes: h}, sessions: tt.sessions}
			session := new(sdk.ServerSession)
			first, releaseFirst, err := e.find(t.Context(), session, "")
			must.Do(t, err)
			second, releaseSecond, err := e.find(t.Context(), session, "")
			must.Do(t, err)
			if (first == second) != tt.same || (first.ID() == givenBox) != tt.given || heldBy(h)[first.ID()] != map[bool]int{true: 2, false: 1}[tt.same] {
				t.Errorf("%s: got %s and %s with %v calls, want the same: %v", tt.name, first.ID(), second.ID(), heldBy(h), tt.same)
			}
			releaseFirst()
			releaseSecond()
			named, release, err := e.find(t.Context(), session, first.ID())
			if err != nil || named != first {
				t.Errorf("%s: by its id, got %v and error %v", tt.name, named, err)
			}
			release()
		}
		must.Do(t, h.close())
	})
}

// TestCheckpointsAreMade checks a checkpoint, its end with the server, and the sandbox that is made from one.
func TestCheckpointsAreMade(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, service := newPretended(t, func(c *Config) { c.Sandboxes = nil })
		service.owners["snap"] = "me" // the checkpoint
		e := &endpoint{Server: &Server{config: *h.config, sandboxes: h}, sessions: true}
		session := new(sdk.ServerSession)
		box, release, err := e.find(t.Context(), session, "")
		must.Do(t, err)
		release()
		c := &call{server: e, box: box}
		service.requests()
		service.breakAt("/snapshots")
		if err := makeCheckpoint(t.Context(), c, arguments{}); err == nil || len(h.checkpoints) > 0 || len(c.answer.notes) > 0 {
			t.Errorf("one that fails: got error %v, and the notes %q", err, c.answer.notes)
		}
		service.breakAt("")
		must.Do(t, makeCheckpoint(t.Context(), c, arguments{}))
		if _, there := h.checkpoints["snap"]; !there || len(c.answer.notes) != 1 || !strings.HasSuffix(c.answer.notes[0], " · "+contents(nil)) {
			t.Errorf("got the checkpoints %v and the notes %q", h.checkpoints, c.answer.notes)
		}
		var id string
		_, err = fmt.Sscanf(c.answer.notes[0], "checkpoint %s", &id)
		must.Do(t, err)
		if made := service.made[len(service.made)-1]; !strings.Contains(made, `"e2bctl-mcp-me-`+id+`"`) {
			t.Errorf("it was made with %s, want its name", made)
		}
		for _, wrong := range []string{"", "ABC", "abc/", "abc1"} {
			if got := pieces(e.restore(t.Context(), session, wrong)); !got.isError || got.notes != "[error: "+errNoCheckpoint.Error()+"]" {
				t.Errorf("%q: got %+v", wrong, got)
			}
		}
		for name, tt := range map[string]struct{ broken, gone, want string }{
			"it is gone": {"", "-" + id, errNoCheckpoint.Error()}, "it fails": {"POST /v2/sandboxes", "", "broken"},
		} {
			service.breakAt(tt.broken)
			service.gone = tt.gone
			if got := pieces(e.restore(t.Context(), session, id)); !got.isError || !strings.Contains(got.notes, tt.want) || strings.Contains(got.notes, errNoCheckpoint.Error()) != (tt.gone != "") {
				t.Errorf("%s: got %+v, want %q", name, got, tt.want)
			}
		}
		service.breakAt("")
		service.gone = ""
		got := pieces(e.restore(t.Context(), session, id))
		restored := h.own[session].sandbox
		if want := "[restored checkpoint " + id + "]\n[sandbox " + restored.ID() + "]"; got.isError || got.notes != want || restored == box || heldBy(h)[restored.ID()] != 0 {
			t.Errorf("got %+v, want %q", got, want)
		}
		if made := service.made[len(service.made)-1]; !strings.Contains(made, `"templateID":"e2bctl-mcp-me-`+id+`"`) {
			t.Errorf("it was made with %s", made)
		}
		e.sessions = false
		if got := pieces(e.restore(t.Context(), session, id)); got.isError || h.own[session].sandbox != restored {
			t.Errorf("without sessions: got %+v, want another sandbox for the call alone", got)
		}
		service.requests()
		must.Do(t, h.close())
		if all := service.requests(); !strings.Contains(all, "DELETE /templates/snap") {
			t.Errorf("the requests at the end were %s, want the end of the checkpoint", all)
		}
	})
}
