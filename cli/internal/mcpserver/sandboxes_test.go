package mcpserver

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/internal/clienttest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestAnotherClientGoesOn checks that a client that names a sandbox continues in it, in any
// session and over any transport.
func TestAnotherClientGoesOn(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	first := s.connect(t, versions[0], nil)
	id := first.works(t, "run_python", args{"code": "x = 1"}).sandbox(t)
	for _, version := range versions {
		second := s.connectHTTP(t, version)
		if a := second.works(t, "run_python", args{"code": "x", "sandbox": id}); a.text != "1" || a.sandbox(t) != id {
			t.Errorf("%s: got %q in %s, want the variable in %s", version, a.text, a.sandbox(t), id)
		}
	}
	if other := s.connectHTTP(t, versions[0]).works(t, "bash", args{"command": "ls"}).sandbox(t); other == id {
		t.Error("a session that named no sandbox got that of another one")
	}
}

// Over HTTP, clients of the older protocol have a session, and with it a sandbox. Those of the newer have
// none: each call without a name has a sandbox of its own.
func TestSessionsOverHTTP(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for _, version := range versions {
		c := s.connectHTTP(t, version)
		first := c.works(t, "bash", args{"command": "ls"}).sandbox(t)
		second := c.works(t, "bash", args{"command": "ls"}).sandbox(t)
		if want := version < roundTrips; (first == second) != want {
			t.Errorf("%s: got the sandboxes %s and %s, want the same: %v", version, first, second, want)
		}
	}
}

// Only the sandboxes of the owner, and those that the operator named, can be named.
func TestForeignSandboxes(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t)
	foreign, given := cloud.Create(t), cloud.Create(t)
	owned := serveFrom(t, cloud, func(c *Config) { c.Keep = true }).connect(t, roundTrips, nil).works(t, "run_python", args{"code": "kept = 5"}).sandbox(t)
	other := serveFrom(t, cloud, func(c *Config) { c.Owner = "ANOTHEROWNERANOTHER" }).connect(t, roundTrips, nil).works(t, "bash", args{"command": "ls"}).sandbox(t)

	s := serveFrom(t, cloud, func(c *Config) { c.Sandboxes = []string{given.ID()} })
	c := s.connect(t, roundTrips, nil)
	if got := c.works(t, "bash", args{"command": "ls"}).sandbox(t); got != given.ID() {
		t.Errorf("a call without a name used %s, want the sandbox that the operator named", got)
	}
	if a := c.works(t, "run_python", args{"code": "kept", "sandbox": owned}); a.text != "5" {
		t.Errorf("got %q from a sandbox of an earlier server, want its variable", a.text)
	}
	var texts []string
	for _, id := range []string{foreign.ID(), other, "idoesnotexist0000000", "../sandboxes", "a b"} {
		texts = append(texts, c.fails(t, "bash", args{"command": "ls", "sandbox": id}, "no such sandbox of this server").notes)
	}
	if texts[0] != texts[2] {
		t.Errorf("got %q for a foreign sandbox and %q for none: the answer tells which exist", texts[0], texts[2])
	}
	must.Do(t, s.Close())
	for _, sb := range []*sandbox.Sandbox{foreign, given} {
		if _, err := sb.Commands.Run(t.Context(), "true", nil); err != nil {
			t.Errorf("a sandbox that is not the server's: got %v after its end", err)
		}
	}
	patience.Until(t, "the server's shell in a sandbox of others ends", func() bool {
		left, err := given.Commands.List(t.Context(), nil)
		return err == nil && len(left) == 0
	})
}

// The first call that is cancelled does not end the sandbox that it began.
func TestCancelledFirstCall(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t)
	client, err := sandbox.NewClient(cloud.Option())
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, client.Close()) })
	goOn, calls := make(chan struct{}), 0
	s := serveFrom(t, cloud, func(config *Config) {
		config.Open = func(context.Context) (*sandbox.Client, error) { calls++; <-goOn; return client, nil }
	})
	c := s.connect(t, roundTrips, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = c.CallTool(ctx, &sdk.CallToolParams{Name: "bash", Arguments: args{"command": "ls"}})
	must.Is(t, err, context.DeadlineExceeded)
	close(goOn)
	c.works(t, "bash", args{"command": "ls"})
	if calls != 1 {
		t.Errorf("the server connected %d times", calls)
	}
	if n := count(t, client); n != 1 {
		t.Errorf("got %d sandboxes, want one", n)
	}
}

func count(t *testing.T, client *sandbox.Client) (n int) {
	t.Helper()
	for _, err := range client.List(t.Context(), nil) {
		must.Do(t, err)
		n++
	}
	return n
}

// A service that cannot be reached is an answer, and so is one that has no room. The next call tries again.
func TestNoSandbox(t *testing.T) {
	t.Parallel()
	broken, err := New(Config{Open: func(context.Context) (*sandbox.Client, error) { return nil, errors.New("nobody is there") }})
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, broken.Close()) })
	(&service{Server: broken}).connect(t, roundTrips, nil).fails(t, "bash", args{"command": "ls"}, "nobody is there")

	s := serve(t, func(c *Config) { c.MaxSandboxes = 1 })
	web := s.connectHTTP(t, roundTrips)
	id := web.works(t, "bash", args{"command": "ls"}).sandbox(t)
	web.fails(t, "bash", args{"command": "ls"}, "1 sandboxes already")
	web.works(t, "bash", args{"command": "ls", "sandbox": id})
	prepared := false
	picky := serve(t, func(c *Config) {
		c.Prepare = func(context.Context, *sandbox.Sandbox) error {
			if prepared {
				return nil
			}
			prepared = true
			return errors.New("the upload failed")
		}
	})
	c := picky.connect(t, roundTrips, nil)
	c.fails(t, "bash", args{"command": "ls"}, "the upload failed")
	c.works(t, "bash", args{"command": "ls"})
}

// TestSandboxesEnd checks that an unused sandbox ends, that the server then drops all state of
// it, and that a sandbox that ended is replaced.
func TestSandboxesEnd(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t)
	client, err := sandbox.NewClient(cloud.Option())
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, client.Close()) })
	s := serveFrom(t, cloud, func(c *Config) { c.Idle = 100 * time.Millisecond })
	c := s.connect(t, roundTrips, nil)
	first := c.works(t, "bash", args{"command": "sleep 0.5"}).sandbox(t)
	patience.Until(t, "the idle sandbox ends", func() bool { return count(t, client) == 0 })
	if second := c.works(t, "bash", args{"command": "ls"}).sandbox(t); second == first {
		t.Error("the sandbox outlived its idle time")
	}

	lasting := serveFrom(t, cloud, nil).connect(t, roundTrips, nil)
	killed := lasting.works(t, "bash", args{"command": "ls"}).sandbox(t)
	must.Do(t, client.Kill(t.Context(), killed))
	lasting.fails(t, "bash", args{"command": "ls"}, "a call without \"sandbox\" goes on in a new one")
	if next := lasting.works(t, "bash", args{"command": "ls"}).sandbox(t); next == killed {
		t.Error("the session still has the sandbox that was killed")
	}
}

// Sandboxes and checkpoints end with the server; with Keep they stay.
func TestServerEnds(t *testing.T) {
	t.Parallel()
	for _, keep := range []bool{false, true} {
		cloud := sandboxtest.New(t)
		client, err := sandbox.NewClient(cloud.Option())
		must.Do(t, err)
		t.Cleanup(func() { must.Do(t, client.Close()) })
		s := serveFrom(t, cloud, func(c *Config) { c.Keep = keep })
		s.connect(t, roundTrips, nil).works(t, "checkpoint", args{})
		must.Do(t, s.Close())
		must.Do(t, s.Close())
		snapshots := 0
		for _, err := range client.Snapshots.List(t.Context(), nil) {
			must.Do(t, err)
			snapshots++
		}
		want := map[bool]int{true: 1}[keep]
		if n := count(t, client); n != want || snapshots != want {
			t.Errorf("keep %v: got %d sandboxes and %d checkpoints after the end, want %d", keep, n, snapshots, want)
		}
	}
}

// A checkpoint has the files at its time; restore makes them the session's.
func TestCheckpoint(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t)
	s := serveFrom(t, cloud, nil)
	c := s.connect(t, roundTrips, nil)
	c.works(t, "write_file", args{"path": "a", "content": "before"})
	made := c.works(t, "checkpoint", args{})
	if !strings.Contains(made.notes, "neither variables nor processes") {
		t.Errorf("got %q, want what the checkpoint has", made.notes)
	}
	_, rest, _ := strings.Cut(made.notes, "[checkpoint ")
	id, _, _ := strings.Cut(rest, " ")
	c.works(t, "write_file", args{"path": "a", "content": "after"})
	restored := c.works(t, "restore", args{"checkpoint": id}).sandbox(t)
	if a := c.works(t, "read_file", args{"path": "a"}); a.text != "before" || a.sandbox(t) != restored || restored == made.sandbox(t) {
		t.Errorf("got %q in %s, want the content at the checkpoint in the new sandbox", a.text, a.sandbox(t))
	}
	if a := c.works(t, "read_file", args{"path": "a", "sandbox": made.sandbox(t)}); a.text != "after" {
		t.Errorf("got %q in the sandbox before, want it as it was", a.text)
	}
	other := serveFrom(t, cloud, func(c *Config) { c.Owner = "ANOTHEROWNERANOTHER" }).connect(t, roundTrips, nil)
	for _, wrong := range []string{id, "code-interpreter-v1", "", "../x"} {
		other.fails(t, "restore", args{"checkpoint": wrong}, "no such checkpoint")
	}
}

// TestDoorOverHTTP checks that the HTTP server serves clients with the token, and no page in a
// browser.
func TestDoorOverHTTP(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	web := httptest.NewServer(s.Handler(testToken))
	t.Cleanup(web.Close)
	const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	for name, c := range map[string]struct {
		change func(*http.Request)
		want   int
	}{
		"with the token":        {func(*http.Request) {}, http.StatusOK},
		"without a token":       {func(r *http.Request) { r.Header.Del("Authorization") }, http.StatusUnauthorized},
		"with another token":    {func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+testToken+"x") }, http.StatusUnauthorized},
		"with an empty token":   {func(r *http.Request) { r.Header.Set("Authorization", "Bearer ") }, http.StatusUnauthorized},
		"from a page":           {func(r *http.Request) { r.Header.Set("Origin", "https://page.example") }, http.StatusForbidden},
		"from a page, newer":    {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, http.StatusForbidden},
		"after a rebinding":     {func(r *http.Request) { r.Host = "page.example" }, http.StatusForbidden},
		"with a rebound origin": {func(r *http.Request) { r.Host = "page.example"; r.Header.Set("Origin", "http://page.example") }, http.StatusForbidden},
		"too large": {func(r *http.Request) {
			r.Body = io.NopCloser(strings.NewReader(strings.Repeat(" ", MaxRequestBytes+1)))
			r.ContentLength = MaxRequestBytes + 1
		}, http.StatusRequestEntityTooLarge},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, web.URL, strings.NewReader(hello))
		must.Do(t, err)
		for header, value := range map[string]string{"Authorization": "Bearer " + testToken, "Content-Type": "application/json", "Accept": "application/json, text/event-stream"} {
			req.Header.Set(header, value)
		}
		c.change(req)
		resp, err := clienttest.New(t).Do(req)
		must.Do(t, err)
		resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("%s: got status %d, want %d", name, resp.StatusCode, c.want)
		}
	}
}

// A script pipes its calls and closes its end. It gets all answers.
func TestAnswersAfterEndOfInput(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	in := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":"two","method":"tools/call","params":{"name":"bash","arguments":{"command":"sleep 0.3; echo done"}}}
`)
	var out strings.Builder
	must.Do(t, s.Serve(t.Context(), io.NopCloser(in), nopWriteCloser{&out}))
	if got := out.String(); !strings.Contains(got, `"id":"two"`) || !strings.Contains(got, `"done"`) {
		t.Errorf("got %q, want the answer of the call", got)
	}
}

type nopWriteCloser struct{ io.Writer }

func (nopWriteCloser) Close() error { return nil }

// TestRoomForSandboxes checks how many sandboxes a server holds or makes at once, that none is made while it ends,
// and for how long a call waits.
func TestRoomForSandboxes(t *testing.T) {
	t.Parallel()
	unreachable := errors.New("nobody is there")
	opens := 0
	config := &Config{MaxSandboxes: 3, Open: func(context.Context) (*sandbox.Client, error) { opens++; return nil, unreachable }}
	h := newHoldings(config, nil)
	session := new(sdk.ServerSession)
	for range 2 { // one that fails does not stay
		if box, release, err := h.ofSession(t.Context(), session); box != nil || release != nil || !errors.Is(err, unreachable) {
			t.Errorf("got %v and error %v, want %v", box, err, unreachable)
		}
		if h.making != 0 || len(h.own) != 0 {
			t.Errorf("%d sandboxes are made, for %d sessions", h.making, len(h.own))
		}
	}
	for name, call := range map[string]func() (*held, func(), error){
		"fresh": func() (*held, func(), error) { return h.fresh(t.Context()) }, "restored": func() (*held, func(), error) { return h.restored(t.Context(), nil) },
		"named": func() (*held, func(), error) { return h.named(t.Context(), "x") },
	} {
		if _, _, err := call(); !errors.Is(err, unreachable) {
			t.Errorf("%s: got error %v, want %v", name, err, unreachable)
		}
	}
	if opens != 1 {
		t.Errorf("the server connected %d times", opens)
	}
	h.held["a"] = nil
	for making, fits := range map[int]bool{1: true, 2: false} {
		h.making = making
		if err := h.room(); (err == nil) != fits || !fits && !strings.Contains(err.Error(), "this server has 3 sandboxes already") {
			t.Errorf("one is held, and %d are made: got error %v, want room: %v", making, err, fits)
		}
	}
	if _, _, err := h.ofSession(t.Context(), session); err == nil || len(h.own) != 0 {
		t.Errorf("without room: got error %v, and %d sessions wait", err, len(h.own))
	}
	delete(h.held, "a")
	h.making = 0
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the client has gone")
	cancel(cause)
	if _, _, err := h.await(ctx, &pending{done: make(chan struct{})}); !errors.Is(err, cause) {
		t.Errorf("a call that was given up: got error %v, want %v", err, cause)
	}
	must.Do(t, errors.Join(h.close(), h.close()))
	if _, _, err := h.fresh(t.Context()); !errors.Is(err, errEnding) {
		t.Errorf("at the end: got error %v, want %v", err, errEnding)
	}
	slow := newHoldings(&Config{Open: func(ctx context.Context) (*sandbox.Client, error) { <-ctx.Done(); return nil, ctx.Err() }}, nil)
	if _, err := slow.client(ctx); !errors.Is(err, cause) {
		t.Errorf("a slow service: got error %v, want %v", err, cause)
	}
	must.Do(t, slow.close())
	if _, err := slow.client(t.Context()); !errors.Is(err, errEnding) && !errors.Is(err, context.Canceled) {
		t.Errorf("a slow service, at the end: got error %v, want %v", err, errEnding)
	}
}
