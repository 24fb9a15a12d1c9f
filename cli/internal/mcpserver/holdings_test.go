package mcpserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
)

// pretended is a service whose sandboxes have ids and owners alone. It is a transport, so that time may be faked, too.
type pretended struct {
	owners map[string]string // the owners of the sandboxes that exist, by their ids
	broken string            // requests that contain it fail; "": none
	status int               // of those that fail
	gone   string            // no sandbox is made of a template whose name contains it; "": of each
	delay  time.Duration     // of each request to create a sandbox

	mu    sync.Mutex
	asked []string // requests, without those of leases
	made  []string // bodies of the requests to create
}

func (p *pretended) RoundTrip(r *http.Request) (*http.Response, error) {
	request := r.Method + " " + r.URL.Path
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		_ = r.Body.Close()
	}
	if request == "POST /v2/sandboxes" && p.delay > 0 {
		<-time.After(p.delay)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !strings.HasSuffix(request, "/timeout") && !strings.HasSuffix(request, "/refreshes") {
		p.asked = append(p.asked, request)
	}
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	id := strings.Split(strings.TrimPrefix(r.URL.Path, "/v2")+"///", "/")[2]
	isNew := request == "POST /v2/sandboxes" && (p.gone == "" || !strings.Contains(string(body), p.gone))
	if isNew {
		id = fmt.Sprintf("inew%016d", len(p.owners))
		p.owners[id] = "me"
	}
	if isNew || strings.HasSuffix(request, "/snapshots") {
		p.made = append(p.made, string(body))
	}
	owner, there := p.owners[id]
	switch {
	case p.broken != "" && strings.Contains(request, p.broken):
		w.WriteHeader(p.status)
		_, _ = io.WriteString(w, `{"code":400,"message":"broken"}`)
	case !there:
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"code":404,"message":"not found"}`)
	case r.Method == http.MethodDelete:
		delete(p.owners, id)
		w.WriteHeader(http.StatusNoContent)
	default:
		_, _ = fmt.Fprintf(w, `{"sandboxID":%q,"snapshotID":"snap","templateID":"base","clientID":"c","envdVersion":"0.6.13","state":"running","metadata":{%q:%q}}`, id, OwnerLabel, owner)
	}
	return w.Result(), nil
}

// breakAt makes the requests fail that contain the text; "": none.
func (p *pretended) breakAt(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = text
}

// requests returns the requests since its last call.
func (p *pretended) requests() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := strings.Join(p.asked, ", ")
	p.asked = nil
	return all
}

const (
	ownBox, foreignBox, givenBox = "iown0000000000000000", "iforeign000000000000", "igiven00000000000000"
)

// newPretended returns the holdings of a server with a pretended service that has three sandboxes.
func newPretended(t *testing.T, change func(*Config)) (*holdings, *pretended) {
	t.Helper()
	service := &pretended{status: http.StatusBadRequest, owners: map[string]string{ownBox: "me", foreignBox: "you", givenBox: "you"}}
	client, err := sandbox.NewClient(sandbox.WithTransport(service), sandbox.WithAPIKey("e2b_0000000000000000000000000000000000000000"))
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, client.Close()) })
	config := &Config{
		Open: func(context.Context) (*sandbox.Client, error) { return client, nil }, Owner: "me", Sandboxes: []string{givenBox}, Idle: time.Minute, MaxSandboxes: 9,
		Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(config)
	}
	return newHoldings(config, nil), service
}

// heldBy returns the numbers of calls of the sandboxes that a server holds.
func heldBy(h *holdings) map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	calls := map[string]int{}
	for id, box := range h.held {
		calls[id] = box.calls
	}
	return calls
}

// wantRequests checks the requests since the last check.
func (p *pretended) wantRequests(t *testing.T, what, want string) {
	t.Helper()
	if diff := cmp.Diff(want, p.requests()); diff != "" {
		t.Errorf("%s: requests (-want +got):\n%s", what, diff)
	}
}

// TestHeldSandboxes checks for how long sandboxes are held that calls name, and that with the hold ends an own
// sandbox, or only the connection to another.
func TestHeldSandboxes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, service := newPretended(t, nil)
		name := func(id string, want error) func() {
			t.Helper()
			box, release, err := h.named(t.Context(), id)
			if !errors.Is(err, want) || (err == nil) != (want == nil) || err == nil && box.ID() != id {
				t.Fatalf("%s: got error %v, want %v", id, err, want)
			}
			return release
		}
		name(foreignBox, errNotYours)
		service.wantRequests(t, "another's", "GET /sandboxes/"+foreignBox)
		name("inone", errNotYours)
		service.wantRequests(t, "none", "GET /sandboxes/inone")
		given, own := name(givenBox, nil), name(ownBox, nil)
		service.wantRequests(t, "two", "POST /v2/sandboxes/"+givenBox+"/connect, GET /sandboxes/"+ownBox+", POST /v2/sandboxes/"+ownBox+"/connect")
		again := name(ownBox, nil)
		service.wantRequests(t, "one that is held", "")
		<-time.After(3 * time.Minute) // their calls go on
		given()
		own()
		<-time.After(59 * time.Second)
		if held := heldBy(h); len(held) != 2 {
			t.Errorf("%v are held, want 2", held)
		}
		<-time.After(2 * time.Second)
		synctest.Wait()
		if held := heldBy(h); len(held) != 1 || held[ownBox] != 1 {
			t.Errorf("%v are held, want the one with a call", held)
		}
		service.wantRequests(t, "another's that is not used", "")
		again()
		<-time.After(61 * time.Second)
		synctest.Wait()
		service.wantRequests(t, "an own one that is not used", "DELETE /sandboxes/"+ownBox)
		name(ownBox, errNotYours)
		if held := heldBy(h); len(held) != 0 {
			t.Errorf("%v are held, want none", held)
		}
		service.breakAt("/connect")
		if _, _, err := h.named(t.Context(), givenBox); err == nil || errors.Is(err, errNotYours) {
			t.Errorf("one that cannot be reached: got error %v", err)
		}
		service.requests()
		name("a b", errNotYours)
		service.wantRequests(t, "no id", "")
		service.status = http.StatusForbidden
		service.breakAt("GET ")
		if _, _, err := h.named(t.Context(), foreignBox); err == nil || errors.Is(err, errNotYours) {
			t.Errorf("one that cannot be looked at: got error %v", err)
		}
		service.wantRequests(t, "one that cannot be looked at", "GET /sandboxes/"+foreignBox)
		must.Do(t, h.close())
	})
}

// TestEndOfHoldings checks what becomes of each kind of sandbox when its server ends, and of calls that come later.
func TestEndOfHoldings(t *testing.T) {
	t.Parallel()
	for keep, ends := range map[bool]bool{false: true, true: false} {
		synctest.Test(t, func(t *testing.T) {
			h, service := newPretended(t, func(c *Config) { c.Keep = keep })
			for _, id := range []string{givenBox, ownBox} {
				_, release, err := h.named(t.Context(), id)
				must.Do(t, err)
				release()
			}
			made, release, err := h.fresh(t.Context())
			must.Do(t, err)
			release()
			ended := 0
			service.owners["snap"] = "me"
			h.addCheckpoint("snap")
			made.forwards[1] = published{end: func() error { ended++; return nil }}
			service.requests()
			must.Do(t, errors.Join(h.close(), h.close()))
			if h.life.Err() == nil {
				t.Errorf("keep %v: what the server began goes on", keep)
			}
			if _, left := service.owners["snap"]; left != keep {
				t.Errorf("keep %v: the checkpoint is left: %v", keep, left)
			}
			delete(service.owners, "snap")
			deleted := strings.Count(service.requests(), "DELETE /sandboxes/")
			if want := map[bool]int{true: 2}[ends]; deleted != want || len(service.owners) != 4-want || ended != 1 {
				t.Errorf("keep %v: %d sandboxes were ended, and %d addresses, want %d and 1", keep, deleted, ended, want)
			}
			for what, call := range map[string]func() error{
				"another": func() error { _, _, err := h.fresh(t.Context()); return err }, "of a session": func() error { _, err := h.addHeld(newHeld(made.Sandbox, false), true); return err },
			} {
				if err := call(); !errors.Is(err, errEnding) {
					t.Errorf("%s: got error %v, want %v", what, err, errEnding)
				}
			}
			<-time.After(time.Hour) // no timer is left
		})
	}
}

// TestSandboxOfASession checks that the calls of a session share one sandbox, from its making on and until it ends
// or is replaced.
func TestSandboxOfASession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		prepared := 0
		h, service := newPretended(t, func(c *Config) {
			c.Sandboxes = nil
			c.Prepare = func(context.Context, *sandbox.Sandbox) error { prepared++; return nil }
		})
		service.delay = time.Second
		one := new(sdk.ServerSession)
		boxes := make([]*held, 3)
		var calls sync.WaitGroup
		for i := range boxes {
			calls.Go(func() {
				box, release, err := h.ofSession(t.Context(), one)
				if err != nil {
					t.Errorf("got error %v", err)
					return
				}
				boxes[i] = box
				release()
			})
		}
		calls.Wait()
		if boxes[0] == nil || len(slices.Compact(slices.Clone(boxes[:]))) != 1 || prepared != 1 {
			t.Fatalf("got the sandboxes %v, prepared %d times, want one", boxes, prepared)
		}
		if boxes[0].calls != 0 || !boxes[0].isOwn {
			t.Errorf("got %d calls that use it, own: %v, want none and an own one", boxes[0].calls, boxes[0].isOwn)
		}
		if made := service.made[0]; !strings.Contains(made, `"`+OwnerLabel+`":"me"`) {
			t.Errorf("it was made with %s, want its owner", made)
		}
		service.wantRequests(t, "three calls", "POST /v2/sandboxes")
		restored, release, err := h.restored(t.Context(), nil)
		must.Do(t, err)
		h.replace(one, restored)
		release()
		box, release, err := h.ofSession(t.Context(), one)
		if err != nil || box != restored || prepared != 1 {
			t.Errorf("a restored one: got %v and error %v, prepared %d times", box, err, prepared)
		}
		release()
		h.letGo(restored)
		h.letGo(restored)
		synctest.Wait()
		if h.own[one] != nil || h.held[restored.ID()] != nil {
			t.Error("a sandbox that has ended is still that of the session")
		}
		next, release, err := h.ofSession(t.Context(), one)
		if err != nil || next == restored || prepared != 2 {
			t.Errorf("the next one: got %v and error %v, prepared %d times", next, err, prepared)
		}
		release()
		if _, _, err := h.await(t.Context(), &pending{done: closedChannel(), sandbox: restored}); !errors.Is(err, errNotYours) {
			t.Errorf("one that ended meanwhile: got error %v, want %v", err, errNotYours)
		}
		must.Do(t, h.close())
	})
}

// closedChannel returns a channel that is closed.
func closedChannel() chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

// TestSandboxesThatFail checks that a sandbox that cannot be prepared is ended, and that errors of the end of an idle
// one are logged.
func TestSandboxesThatFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("the upload failed")
		var log bytes.Buffer
		h, service := newPretended(t, func(c *Config) {
			c.Prepare = func(context.Context, *sandbox.Sandbox) error { return broken }
			c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		if _, _, err := h.fresh(t.Context()); !errors.Is(err, broken) || len(service.owners) != 3 || len(h.held) != 0 || h.making != 0 {
			t.Errorf("got error %v, %d sandboxes, %d of them held, want %v and none", err, len(service.owners), len(h.held), broken)
		}
		_, release, err := h.named(t.Context(), ownBox)
		must.Do(t, err)
		release()
		service.breakAt("DELETE")
		<-time.After(2 * time.Minute)
		synctest.Wait()
		if !strings.Contains(log.String(), `msg="a sandbox could not be ended" sandbox=`+ownBox) {
			t.Errorf("got the log %s", log.String())
		}
		service.breakAt("")
		// Two calls may connect to one sandbox at the same time.
		client, err := h.client(t.Context())
		must.Do(t, err)
		var both [2]*held
		for i := range both {
			sb, err := client.Connect(t.Context(), givenBox)
			must.Do(t, err)
			both[i], err = h.addHeld(newHeld(sb, false), true)
			must.Do(t, err)
		}
		if both[0] != both[1] || both[0].calls != 2 {
			t.Errorf("got two sandboxes, or %d calls of one, want 2", both[0].calls)
		}
		h.done(both[0])
		h.done(both[0])
		must.Do(t, h.close())
	})
}

// TestEndWaitsForNewSandboxes checks that each call of close returns after the sandboxes that are being made, and that these end.
func TestEndWaitsForNewSandboxes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, service := newPretended(t, func(c *Config) {
			c.Prepare = func(context.Context, *sandbox.Sandbox) error { <-time.After(time.Second); return nil }
		})
		began := time.Now()
		var all sync.WaitGroup
		all.Go(func() {
			if _, _, err := h.fresh(t.Context()); err == nil {
				t.Error("a sandbox was made while the server ended")
			}
		})
		synctest.Wait()
		for range 2 {
			all.Go(func() {
				must.Is(t, h.close(), nil)
				if took := time.Since(began); took != time.Second || h.making != 0 {
					t.Errorf("the end took %v, and %d sandboxes are being made, want %v and none", took, h.making, time.Second)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		if len(service.owners) != 3 || len(h.held) != 0 {
			t.Errorf("%d sandboxes are left, and %d are held, want 3 and none", len(service.owners), len(h.held))
		}
	})
}

// TestOptionsOfNewSandboxes checks what a sandbox is made with, by the configuration of its server.
func TestOptionsOfNewSandboxes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		config Config
		has    []string
	}{
		"nothing": {Config{}, nil}, "a proxy": {Config{Proxies: make([]Proxy, 1)}, []string{`"allowPublicTraffic":false`}},
		"options": {Config{Options: []sandbox.CreateOption{sandbox.WithTemplate("mine")}}, []string{`"templateID":"mine"`}},
	} {
		synctest.Test(t, func(t *testing.T) {
			h, service := newPretended(t, func(c *Config) { c.Proxies, c.Options = tt.config.Proxies, tt.config.Options })
			_, release, err := h.fresh(t.Context())
			must.Do(t, err)
			release()
			for _, part := range []string{`"allowPublicTraffic":false`, `"templateID":"mine"`} {
				if got := strings.Contains(service.made[0], part); got != slices.Contains(tt.has, part) {
					t.Errorf("%s: it was made with %s, which has %s: %v", name, service.made[0], part, got)
				}
			}
			must.Do(t, h.close())
		})
	}
}

// TestHoldEndsOnce checks that a sandbox is ended once, whoever ends it.
func TestHoldEndsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, service := newPretended(t, nil)
		const other = "iown1111111111111111"
		service.owners[other] = "me"
		box := map[string]*held{}
		for _, id := range []string{ownBox, other} {
			named, release, err := h.named(t.Context(), id)
			must.Do(t, err)
			release()
			box[id] = named
		}
		ends := func(id string) {
			h.letGo(box[id])
			h.letGo(box[id])
			h.expire(box[id])
			synctest.Wait()
		}
		service.requests()
		ends(ownBox)
		service.wantRequests(t, "one that has ended", "DELETE /sandboxes/"+ownBox)
		must.Do(t, h.close())
		service.wantRequests(t, "the end of the server", "DELETE /sandboxes/"+other)
		ends(other)
		service.wantRequests(t, "after the end of the server", "")
	})
}
