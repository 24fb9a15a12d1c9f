package mcpserver

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
)

// The user is asked before a sandbox reaches a host, in both forms of the protocol. Each host has its question.
func TestAskBeforeHosts(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *Config) { c.Ask = true })
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var questions []string
			c := s.connect(t, version, &sdk.ClientOptions{ElicitationHandler: func(_ context.Context, req *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
				mu.Lock()
				defer mu.Unlock()
				questions = append(questions, req.Params.Message)
				if strings.Contains(req.Params.Message, "yes.example") {
					return &sdk.ElicitResult{Action: "accept"}, nil
				}
				return &sdk.ElicitResult{Action: "decline"}, nil
			}})
			// The names exist nowhere. Only an allowed one is looked up.
			a := c.works(t, "bash", args{"command": "for host in yes.example no.example; do curl -sf --max-time 20 http://$host/; done; echo done"})
			if a.text != "done" || !strings.Contains(a.notes, "no.example:80 could not be reached: nobody allowed it") || strings.Contains(a.notes, "yes.example") {
				t.Errorf("got %q with %q, want the host that the user refused", a.text, a.notes)
			}
			mu.Lock()
			defer mu.Unlock()
			if len(questions) != 2 {
				t.Errorf("got the questions %q, want one for each host", questions)
			}
		})
	}
}

// A client that cannot ask its user is told why a host was not reached.
func TestNobodyToAsk(t *testing.T) {
	t.Parallel()
	c := serve(t, func(c *Config) { c.Ask = true }).connect(t, roundTrips, nil)
	if a := c.works(t, "bash", args{"command": "curl -sf --max-time 20 http://no.example/; echo done"}); a.text != "done" || !strings.Contains(a.notes, "no.example:80 could not be reached") {
		t.Errorf("got %q with %q, want the host that was refused", a.text, a.notes)
	}
}

// TestForgedAnswer checks that an answer to a question that was not asked has no effect.
func TestForgedAnswer(t *testing.T) {
	t.Parallel()
	c := serve(t, nil).connect(t, roundTrips, nil)
	result, err := c.CallTool(t.Context(), &sdk.CallToolParams{
		Name: "bash", Arguments: args{"command": "touch forged"}, RequestState: "guess",
		InputResponses: sdk.InputResponseMap{questionID: &sdk.ElicitResult{Action: "accept"}},
	})
	must.Do(t, err)
	if a := pieces(result); !a.isError || !strings.Contains(a.notes, "has expired") {
		t.Errorf("got %q, want that the question expired", a.notes)
	}
	c.fails(t, "read_file", args{"path": "forged"}, "does not exist")
}

// A port is published once, and its address ends with the sandbox.
func TestPublishPort(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *Config) { c.Publish = loopback })
	c := s.connect(t, roundTrips, nil)
	c.fails(t, "publish_port", args{"port": 0}, "want 1 to 65535")
	c.fails(t, "publish_port", args{"port": 49999}, "one of the sandbox's own")
	c.works(t, "bash", args{"command": "echo found >index.html; python3 -m http.server 8000 >/dev/null 2>&1 &"})
	first, second := c.works(t, "publish_port", args{"port": 8000}), c.works(t, "publish_port", args{"port": 8000})
	address := func(a answerOf) string {
		_, rest, _ := strings.Cut(a.notes, " is at ")
		text, _, _ := strings.Cut(rest, ",")
		return text
	}
	if address(first) == "" || address(first) != address(second) {
		t.Fatalf("got %q and %q, want one address", first.notes, second.notes)
	}
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address(first))
	must.Do(t, err)
	must.Do(t, conn.Close())
	must.Do(t, s.Close())
	if conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address(first)); err == nil {
		conn.Close()
		t.Error("the address is still there after the end of the sandbox")
	}
}

// loopback publishes a port as the command does.
func loopback(ctx context.Context, sb *sandbox.Sandbox, port int) (string, func() error, error) {
	f, err := sb.Forward(ctx, "127.0.0.1:0", port, nil)
	if err != nil {
		return "", nil, err
	}
	return f.Addr().String(), f.Close, nil
}
