package mcpserver

import (
	"context"
	"fmt"
	"net"
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

// TestParkedCalls checks which answers reach a call that has asked, and the end of one that gets none.
func TestParkedCalls(t *testing.T) {
	t.Parallel()
	accept, decline := &sdk.ElicitResult{Action: "accept"}, &sdk.ElicitResult{Action: "decline"}
	request := func(name, arguments, state string, answer *sdk.ElicitResult) *sdk.CallToolRequest {
		p := &sdk.CallToolParamsRaw{Name: name, Arguments: []byte(arguments), RequestState: state}
		if answer != nil {
			p.InputResponses = sdk.InputResponseMap{questionID: answer}
		}
		return &sdk.CallToolRequest{Params: p}
	}
	for name, tt := range map[string]struct {
		tool, arguments string
		answer          *sdk.ElicitResult
		after           time.Duration // the answer comes so late
		want            string        // of the call itself: yes, no, or why it ended; "": the answer was refused
	}{
		"yes":                   {"bash", "{}", accept, 0, "yes"},
		"no":                    {"bash", "{}", decline, 0, "no"},
		"nothing":               {"bash", "{}", nil, 0, "no"},
		"at the last moment":    {"bash", "{}", accept, answerTime - 1, "yes"},
		"too late":              {"bash", "{}", accept, answerTime, ""},
		"for another tool":      {"run_python", "{}", accept, 0, ""},
		"for another arguments": {"bash", `{"a":1}`, accept, 0, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			life, end := context.WithCancel(t.Context())
			defer end()
			p, ended := newParking(life), make(chan string, 1)
			var during context.Context
			result, err := p.begin(t.Context(), request("bash", "{}", "", nil), func(ctx context.Context, ask question) *sdk.CallToolResult {
				during = ctx //nolint:fatcontext // to look at it
				word := map[bool]string{true: "yes", false: "no"}[ask(ctx, "May I?")]
				if ctx.Err() != nil {
					word = "cancelled"
				}
				ended <- word
				return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: word}}}
			})
			must.Do(t, err)
			if asked, ok := result.InputRequests[questionID].(*sdk.ElicitParams); !ok || asked.Message != "May I?" || asked.Mode != "form" || result.RequestState == "" {
				t.Fatalf("%s: got %+v, want the question", name, result)
			}
			<-time.After(tt.after)
			synctest.Wait()
			result, err = p.goOn(t.Context(), request(tt.tool, tt.arguments, result.RequestState, tt.answer))
			must.Do(t, err)
			want := tt.want
			if want == "" {
				want = "cancelled"
			}
			if got := <-ended; got != want {
				t.Errorf("%s: the call got %s, want %s", name, got, want)
			}
			if text := result.Content[0].(*sdk.TextContent).Text; result.IsError != (tt.want == "") || text != tt.want && !strings.Contains(text, "has expired") {
				t.Errorf("%s: got the answer %q, an error: %v", name, text, result.IsError)
			}
			if synctest.Wait(); during.Err() == nil {
				t.Errorf("%s: the context of the call has not ended", name)
			}
			p.mu.Lock()
			waiting := len(p.parked)
			p.mu.Unlock()
			if waiting != 0 {
				t.Errorf("%s: %d calls wait", name, waiting)
			}
			<-time.After(2 * answerTime) // nothing happens later
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		p := newParking(t.Context())
		result, err := p.begin(ctx, request("bash", "{}", "", nil), func(ctx context.Context, _ question) *sdk.CallToolResult {
			<-ctx.Done()
			return &sdk.CallToolResult{IsError: true}
		})
		if err != nil || !result.IsError {
			t.Errorf("a request that was given up: got %+v and error %v, want that the call was cancelled", result, err)
		}
		o := &parked{questions: make(chan *asked)}
		if o.ask(ctx, "Is anybody there?") {
			t.Error("a question that nobody saw was answered with yes")
		}
		o.questions = make(chan *asked, 1)
		if o.ask(ctx, "And now?") {
			t.Error("a question that nobody answered was answered with yes")
		}
	})
}

// TestWhoIsAsked checks that the client whose call began last is asked, and which hosts an answer names.
func TestWhoIsAsked(t *testing.T) {
	t.Parallel()
	var a asking
	var asked []string
	asker := func(name string, yes bool) func() {
		return a.sendTo(func(_ context.Context, text string) bool {
			asked = append(asked, name+": "+text)
			return yes
		})
	}
	host := func(name string, want bool) {
		t.Helper()
		if got := a.host(t.Context(), name, 443); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	host("nobody", false)
	first, second, third := asker("first", true), asker("second", false), asker("third", true)
	host("a", true)
	second()
	second()
	host("::1", true)
	third()
	host("b\u202e", true)
	first()
	host("c", false)
	const question = "A program in the sandbox wants to reach %s. Allow it, for as long as the sandbox lives?"
	want := []string{"third: " + fmt.Sprintf(question, "a:443"), "third: " + fmt.Sprintf(question, "[::1]:443"), "first: " + fmt.Sprintf(question, "b:443")}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("questions (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"nobody:443", "c:443"}, a.refused()); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
	for range maxRefused + 1 {
		host("d", false)
	}
	if n, after := len(a.refused()), len(a.refused()); n != maxRefused || after != 0 {
		t.Errorf("%d hosts were refused, and then %d, want %d and none", n, after, maxRefused)
	}
}
