package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
)

// The tests of this file run before the parallel ones: a mistake that they find at once would make those wait.

// keeps calls functions one after the other. Each must leave the lock free.
func keeps(t *testing.T, mu *sync.Mutex, steps ...func()) {
	t.Helper()
	for n, step := range steps {
		if step(); !mu.TryLock() {
			t.Fatalf("the function %d of %d keeps the lock", n+1, len(steps))
		}
		mu.Unlock()
	}
}

// TestHoldingsKeepNoLock checks that the lock of the sandboxes is free after each function, however the function ends.
func TestHoldingsKeepNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, service := newPretended(t, func(c *Config) { c.MaxSandboxes = 1 })
		session, gone := new(sdk.ServerSession), errors.New("the upload failed")
		begin := func(prepare func(context.Context, *sandbox.Sandbox) error) func() {
			return func() {
				h.mu.Lock()
				p := h.make(nil, prepare)
				h.mu.Unlock()
				<-p.done
				synctest.Wait()
			}
		}
		var box *held
		named := func(id string, err error) func() {
			return func() {
				named, release, failed := h.named(t.Context(), id)
				if !errors.Is(failed, err) || (failed == nil) != (err == nil) {
					t.Errorf("%s: got error %v, want %v", id, failed, err)
				}
				if failed == nil {
					box = named
					release()
				}
			}
		}
		keeps(t, &h.mu,
			h.warm, begin(func(context.Context, *sandbox.Sandbox) error { return gone }), begin(nil),
			begin(nil), // there is no room
			named(foreignBox, errNotYours), named(ownBox, nil), named(ownBox, nil),
			func() { h.replace(session, box) },
			func() { // it is that of the session, for as long as it is held
				if _, _, err := h.await(t.Context(), h.own[session]); err != nil {
					t.Error(err)
				}
			},
			func() { h.done(box) },
			func() { _, err := h.addHeld(newHeld(box.Sandbox, false), true); must.Do(t, err) }, // another call was first
			func() { h.expire(box) }, // it is used
			func() { h.letGo(box) }, func() { h.letGo(box) }, func() { h.expire(box) },
			func() {
				if _, _, err := h.await(t.Context(), &pending{done: closedChannel(), sandbox: box}); !errors.Is(err, errNotYours) {
					t.Errorf("got error %v, want %v", err, errNotYours)
				}
			},
			func() { h.addCheckpoint("x") }, func() { h.addCheckpoint("x") },
			func() { service.breakAt("snapshots"); _ = h.close() }, func() { must.Do(t, h.close()) }, h.warm,
			func() { _, _ = h.addHeld(newHeld(box.Sandbox, false), true) }, // too late
		)
		if len(h.checkpoints) != 1 {
			t.Errorf("%v are checkpoints, want one", h.checkpoints)
		}
	})
}

// TestOtherLocks checks that the lock of each other part of a server is free after each of its functions.
func TestOtherLocks(t *testing.T) {
	p := newParking(t.Context())
	state := ""
	keeps(t, &p.mu, func() { state = p.park(&parked{}) }, func() { p.take(state).abandoned.Stop() }, func() { p.take("none") })

	var a asking
	end := func() {}
	no := func(context.Context, string) bool { return false }
	keeps(t, &a.mu, func() { a.host(t.Context(), "x", 1) }, func() { end = a.sendTo(no) }, func() { a.host(t.Context(), "x", 1) }, func() { end() }, func() { end() }, func() { a.refused() })

	o := newOutputs()
	read := func(uri string) func() {
		return func() {
			_, _ = o.read(t.Context(), &sdk.ReadResourceRequest{Params: &sdk.ReadResourceParams{URI: uri}})
		}
	}
	uri := ""
	keeps(t, &o.mu, func() { uri = o.keep("x", "text/plain", []byte("x")).URI }, read(uri), read("none"))

	proxies := newProxies(&Config{})
	missing := Proxy{Name: "x", Command: []string{"/nonexistent"}}
	keeps(t, &proxies.mu, func() { <-proxies.started(missing).ended }, func() { <-proxies.started(missing).ended }, proxies.close, func() { <-proxies.started(missing).ended })

	one := &oneAtATime{WriteCloser: nopWriteCloser{io.Discard}}
	keeps(t, &one.mu, func() { _, _ = one.Write([]byte("x")) })

	box := &held{}
	sh := &shell{between: clip.NewOutput(maxText)}
	keeps(t, &box.mu, func() { box.keepShell(sh) }, box.loseShell, box.endRun)
	keeps(t, &sh.mu, func() { _, _ = sh.Write([]byte("x")) }, func() { sh.running = &shellCall{mark: []byte("\nW"), out: newStream()}; _, _ = sh.Write([]byte("x")) }, func() { sh.takeBetween() })

	server, err := New(Config{})
	must.Do(t, err)
	keeps(t, &server.mu, func() { server.endpoint(true) }, func() { must.Do(t, server.Close()) }, func() { must.Do(t, server.Close()) })

	sessions := newSessions(server.endpoint(true), 1)
	done := func() {}
	keeps(t, &sessions.mu,
		func() { done = sessions.use("none") }, func() { done() }, func() { sessions.begin() }, func() { sessions.begin() }, func() { sessions.opened("") }, func() { sessions.opened("none") },
		func() { sessions.open["x"] = &sessionUse{} }, func() { done = sessions.use("x") }, func() { done() },
	)
}

// TestConnectionsKeepNoLock checks that the lock of a connection is free after each message and at its end.
func TestConnectionsKeepNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &scripted{messages: []jsonrpc.Message{
			request(t, "1", "ping", ""), request(t, "2", "ping", ""), request(t, nil, "notifications/cancelled", `{"requestId":"1"}`), &jsonrpc.Response{Result: json.RawMessage("{}")},
		}}
		conn, err := (&answering{Transport: inner, out: io.Discard, patience: time.Minute}).Connect(t.Context())
		must.Do(t, err)
		c := conn.(*answeringConn)
		var ended sync.WaitGroup
		read := func() { _, _ = c.Read(t.Context()) }
		keeps(t, &c.mu, read, read, read, read,
			func() { must.Do(t, c.Write(t.Context(), &jsonrpc.Response{ID: request(t, "none", "", "").ID})) },
			func() { ended.Go(read); synctest.Wait() }, // the input has ended, and one call is open
			func() {
				must.Do(t, c.Write(t.Context(), &jsonrpc.Response{ID: request(t, "2", "", "").ID}))
				ended.Wait()
			},
			read, // nothing is open
			func() { must.Do(t, c.Close()) },
		)
	})
}
