package mcpserver

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/internal/clienttest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// sessionClient sends requests of sessions.
type sessionClient struct {
	t       *testing.T
	address string
	all     *sessions
	http    *http.Client
}

// send sends a request, and returns its answer, whose stream may be open.
func (c sessionClient) send(method, session, body string) *http.Response {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.address, strings.NewReader(body))
	must.Do(c.t, err)
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	if session != "" {
		r.Header.Set(sessionHeader, session)
	}
	return c.do(r)
}

// do sends a request.
func (c sessionClient) do(r *http.Request) *http.Response {
	c.t.Helper()
	resp, err := c.http.Do(r)
	must.Do(c.t, err)
	c.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// open opens a session, or returns "" if it is refused.
func (c sessionClient) open() string {
	c.t.Helper()
	resp := c.send(http.MethodPost, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	resp.Body.Close()
	c.settle()
	return resp.Header.Get(sessionHeader)
}

// settle waits until the requests that might open a session are counted: that is after their
// answer.
func (c sessionClient) settle() {
	c.t.Helper()
	patience.Until(c.t, "the sessions are counted", func() bool {
		c.all.mu.Lock()
		defer c.all.mu.Unlock()
		return c.all.opening == 0
	})
}

// status returns the status of a ping.
func (c sessionClient) status(session string) int {
	c.t.Helper()
	resp := c.send(http.MethodPost, session, ping)
	resp.Body.Close()
	c.settle()
	return resp.StatusCode
}

// tryInVain sends a request that opens no session, while three sessions are open.
func (c sessionClient) tryInVain(body string, change func(*http.Request)) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.address, strings.NewReader(body))
	must.Do(c.t, err)
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	if change != nil {
		change(r)
	}
	resp := c.do(r)
	resp.Body.Close()
	c.settle()
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if len(c.all.open) != 3 {
		c.t.Errorf("%d sessions are open, want 3", len(c.all.open))
	}
}

// call begins a call of the tool "hold", and has the client go when the tool runs.
func (c sessionClient) call(session string) {
	c.t.Helper()
	running, end := make(chan struct{}), make(chan struct{})
	c.t.Cleanup(func() { close(end) })
	hold := func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		close(running)
		<-end
		return &sdk.CallToolResult{}, nil
	}
	c.all.server.AddTool(&sdk.Tool{Name: "hold", InputSchema: map[string]any{"type": "object"}}, hold)
	ctx, leave := context.WithCancel(c.t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.address, strings.NewReader(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"hold"}}`))
	must.Do(c.t, err)
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, sessionHeader: {session}}
	left := make(chan struct{})
	go func() {
		defer close(left)
		if resp, err := c.http.Do(r); err == nil {
			resp.Body.Close()
		}
	}()
	<-running
	leave()
	<-left
	patience.Until(c.t, "only the call itself uses the session", func() bool {
		c.all.mu.Lock()
		defer c.all.mu.Unlock()
		return c.all.open[session].running == 1
	})
}

// Of three sessions, the one that has been unused for the longest
// time makes room for another one, but not for a request that opens none.
func TestSessionsAreBounded(t *testing.T) {
	t.Parallel()
	const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`
	stream := func(c sessionClient, session string) { c.send(http.MethodGet, session, "") }
	for name, test := range map[string]struct {
		before func(c sessionClient, open []string) // nil: nothing
		want   string                               // + for each session that is open after the fourth, - for each that has ended; three: no fourth is opened
	}{
		"unused":       {nil, "-+++"},
		"the first is": {func(c sessionClient, open []string) { c.status(open[0]) }, "+-++"},
		"ended":        {func(c sessionClient, open []string) { c.send(http.MethodDelete, open[2], "") }, "++-+"},
		"has a stream": {func(c sessionClient, open []string) { stream(c, open[0]) }, "+-++"},
		"has a call":   {func(c sessionClient, open []string) { c.call(open[0]) }, "+-++"},
		"unknown used": {func(c sessionClient, _ []string) { c.status("x") }, "-+++"},
		"all in use": {func(c sessionClient, open []string) {
			for _, session := range open {
				stream(c, session)
			}
		}, "+++-"},
		"no session": {func(c sessionClient, _ []string) {
			c.tryInVain(ping, func(r *http.Request) { r.Method = http.MethodGet })
		}, "+++"},
		"no method": {func(c sessionClient, _ []string) { c.tryInVain(`{"jsonrpc":"2.0","id":1,"method":"none"}`, nil) }, "+++"},
		"malformed": {func(c sessionClient, _ []string) { c.tryInVain(initialize+`[]}`, nil) }, "+++"},
		"no JSON":   {func(c sessionClient, _ []string) { c.tryInVain(initialize, nil) }, "+++"},
		"foreign host": {func(c sessionClient, _ []string) {
			c.tryInVain(initialize+`{}}`, func(r *http.Request) { r.Host = "evil.example" })
		}, "+++"},
		"wrong accept": {func(c sessionClient, _ []string) {
			c.tryInVain(initialize+`{}}`, func(r *http.Request) { r.Header.Del("Accept") })
		}, "+++"},
		"ping": {func(c sessionClient, _ []string) { c.tryInVain(ping, nil) }, "+++"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, err := New(Config{})
			must.Do(t, err)
			t.Cleanup(func() { must.Do(t, server.Close()) })
			all := newSessions(server.endpoint(true), 3)
			web := httptest.NewServer(all.handler(server.streamable(all.server)))
			t.Cleanup(web.Close)
			t.Cleanup(web.CloseClientConnections) // streams
			c := sessionClient{t, web.URL, all, clienttest.New(t)}
			open := []string{c.open(), c.open(), c.open()}
			if test.before != nil {
				test.before(c, open)
			}
			if len(test.want) > len(open) {
				open = append(open, c.open())
			}
			for i, session := range open {
				want := http.StatusOK
				if test.want[i] == '-' {
					want = http.StatusNotFound
				}
				if session == "" {
					session = "none"
				}
				patience.Until(t, "the session is open or not", func() bool { return c.status(session) == want })
			}
		})
	}
}
