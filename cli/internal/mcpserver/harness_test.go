package mcpserver

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/internal/clienttest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	if os.Getenv(asProxied) != "" {
		serveTools()
		return
	}
	goleak.VerifyTestMain(m)
}

// versions are the protocol that most clients speak, and the one without sessions over HTTP.
var versions = []string{"2025-06-18", roundTrips}

// service is a server with a cloud.
type service struct {
	*Server
	cloud *sandboxtest.Cloud
}

// serve returns a server of a new cloud.
func serve(t *testing.T, change func(*Config)) *service {
	t.Helper()
	return serveFrom(t, sandboxtest.New(t), change)
}

// serveFrom returns a server of a cloud that other servers may have, too.
func serveFrom(t *testing.T, cloud *sandboxtest.Cloud, change func(*Config)) *service {
	t.Helper()
	client, err := sandbox.NewClient(cloud.Option())
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, client.Close()) })
	config := Config{Open: func(context.Context) (*sandbox.Client, error) { return client, nil }, Owner: "TESTOWNERTESTOWNER", Version: "test"}
	if change != nil {
		change(&config)
	}
	server, err := New(config)
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, server.Close()) })
	return &service{server, cloud}
}

// client is a connected client.
type client struct{ *sdk.ClientSession }

// connect connects a client over stdin and stdout.
func (s *service) connect(t *testing.T, version string, options *sdk.ClientOptions) *client {
	t.Helper()
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- s.Serve(context.Background(), in, out)
		out.Close()
	}()
	c := connected(t, version, options, &sdk.IOTransport{Reader: fromServer, Writer: toServer})
	t.Cleanup(func() {
		must.Do(t, c.Close())
		must.Do(t, <-served)
	})
	return c
}

const testToken = "token-of-the-test"

// connectHTTP connects a client over HTTP.
func (s *service) connectHTTP(t *testing.T, version string) *client {
	t.Helper()
	web := httptest.NewServer(s.Handler(testToken))
	t.Cleanup(web.Close)
	return connectTo(t, web.URL, version)
}

// connectTo connects a client over HTTP to an address.
func connectTo(t *testing.T, address, version string) *client {
	t.Helper()
	c := connected(t, version, nil, &sdk.StreamableClientTransport{Endpoint: address, HTTPClient: &http.Client{Transport: withToken{clienttest.New(t).Transport}}})
	t.Cleanup(func() { must.Do(t, c.Close()) })
	return c
}

// withToken sends the token.
type withToken struct{ http.RoundTripper }

func (w withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+testToken)
	return w.RoundTripper.RoundTrip(r)
}

func connected(t *testing.T, version string, options *sdk.ClientOptions, transport sdk.Transport) *client {
	t.Helper()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, options).Connect(t.Context(), transport, &sdk.ClientSessionOptions{ProtocolVersion: version})
	must.Do(t, err)
	return &client{session}
}

// answerOf is an answer in pieces.
type answerOf struct {
	text     string // of the sandbox
	notes    string // of the server
	pictures []*sdk.ImageContent
	links    []*sdk.ResourceLink
	isError  bool
}

// sandbox returns the id of the sandbox that the answer names.
func (a answerOf) sandbox(t *testing.T) string {
	t.Helper()
	_, rest, ok := strings.Cut(a.notes, "[sandbox ")
	if !ok {
		t.Fatalf("got the notes %q, want the id of a sandbox", a.notes)
	}
	id, _, _ := strings.Cut(rest, " ")
	return strings.TrimSuffix(id, "]")
}

// call calls a tool. The last text of an answer is the server's.
func (c *client) call(t *testing.T, name string, arguments map[string]any) answerOf {
	t.Helper()
	result, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: arguments})
	must.Do(t, err)
	return pieces(result)
}

// works is call for one that must not fail.
func (c *client) works(t *testing.T, name string, arguments map[string]any) answerOf {
	t.Helper()
	a := c.call(t, name, arguments)
	if a.isError {
		t.Fatalf("%s(%v) failed: %s\n%s", name, arguments, a.notes, a.text)
	}
	return a
}

// fails is call for one that must fail, with notes that contain want.
func (c *client) fails(t *testing.T, name string, arguments map[string]any, want string) answerOf {
	t.Helper()
	a := c.call(t, name, arguments)
	if !a.isError || !strings.Contains(a.notes, want) {
		t.Errorf("%s(%v): got error %v with %q, want one with %q", name, arguments, a.isError, a.notes, want)
	}
	return a
}

func pieces(result *sdk.CallToolResult) answerOf {
	a := answerOf{isError: result.IsError}
	for i, content := range result.Content {
		switch content := content.(type) {
		case *sdk.TextContent:
			if i == len(result.Content)-1 {
				a.notes = content.Text
			} else {
				a.text += content.Text
			}
		case *sdk.ImageContent:
			a.pictures = append(a.pictures, content)
		case *sdk.ResourceLink:
			a.links = append(a.links, content)
		}
	}
	return a
}

type args = map[string]any
