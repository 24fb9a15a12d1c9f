package mcp

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/mcpserver"
	"github.com/e2bctl/e2bctl/internal/clienttest"
	"github.com/e2bctl/e2bctl/internal/cloud/connlimit"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
)

// The oldest connection without a request makes room for a new one.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	server, err := mcpserver.New(mcpserver.Config{Open: func(context.Context) (*sandbox.Client, error) { return nil, errors.New("no service") }})
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, server.Close()) })
	says, said := io.Pipe()
	streams := &cmdutil.IOStreams{Err: said}
	ctx, end := context.WithCancelCause(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- serveHTTP(ctx, &options{factory: &cmdutil.Factory{IO: streams}, IO: streams, HTTP: "127.0.0.1:0"}, server, identity{Token: "t"})
	}()
	line, err := bufio.NewReader(says).ReadString('\n')
	must.Do(t, err)
	_, rest, _ := strings.Cut(line, "http://")
	address, _, _ := strings.Cut(rest, "/")

	var oldest, newest net.Conn
	for range maxConnections + 1 {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		must.Do(t, err)
		defer conn.Close()
		if oldest == nil {
			oldest = conn
		}
		newest = conn
	}
	must.Do(t, oldest.SetDeadline(time.Now().Add(patience.Limit)))
	if _, err := oldest.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("got %v from the oldest connection, want its end", err)
	}

	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	must.Do(t, err)
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Authorization": {"Bearer t"}}
	resp, err := clienttest.New(t).Do(r)
	must.Do(t, err)
	must.Do(t, resp.Body.Close())
	if resp.StatusCode != http.StatusOK {
		t.Errorf("got %s, want an answer beside the others", resp.Status)
	}
	cause := errors.New("the end")
	end(cause)
	must.Is(t, patience.Receive(t, "the end", served), cause)
	must.Do(t, newest.SetDeadline(patience.Deadline()))
	patience.Soon(t, "the end of a connection without a request, after that of the server", strangerPatience/2, func() {
		_, err = newest.Read(make([]byte, 1))
	})
	must.Is(t, err, io.EOF)
}

// TestPublishedPorts checks the addresses of ports of a sandbox: on this machine until the port is closed, or those of the service.
func TestPublishedPorts(t *testing.T) {
	t.Parallel()
	sb := cmdtest.Sandbox(t, http.NewServeMux())
	address, end, err := forward(t.Context(), sb, 3000)
	must.Do(t, err)
	if !strings.HasPrefix(address, "http://127.0.0.1:") {
		t.Errorf("got the address %s", address)
	}
	if other, err := new(net.ListenConfig).Listen(t.Context(), "tcp", strings.TrimPrefix(address, "http://")); err == nil {
		t.Errorf("nothing listens at %s", address)
		must.Do(t, other.Close())
	}
	must.Do(t, end())
	cmdtest.Refuses(t, address)
	if address, _, err := forward(t.Context(), sb, 0); err == nil || address != "" {
		t.Errorf("no port: got the address %s and error %v", address, err)
	}
	address, end, err = publicAddress(t.Context(), sb, 3000)
	if err := errors.Join(err, end()); err != nil || address != sb.URL(3000) {
		t.Errorf("got the address %s and error %v, want %s", address, err, sb.URL(3000))
	}
}

// The end of the listener leaves the connections, whose calls are then answered.
func TestListenerEndsWithoutItsConnections(t *testing.T) {
	t.Parallel()
	inner, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Do(t, err)
	listener := graceful{connlimit.New(inner.(*net.TCPListener), connlimit.Options{Max: 1, Patience: time.Hour})}
	client, err := new(net.Dialer).DialContext(t.Context(), "tcp", inner.Addr().String())
	must.Do(t, err)
	defer client.Close()
	conn, err := listener.Accept()
	must.Do(t, err)
	defer conn.Close()
	must.Do(t, listener.Close())
	_, err = io.WriteString(conn, "x")
	must.Do(t, err)
	_, err = io.ReadFull(client, make([]byte, 1))
	must.Do(t, err)
	_, err = listener.Accept()
	must.Is(t, err, net.ErrClosed)
}

// TestProxyFlag checks which values of --proxy are refused, and the words of the commands of the others.
func TestProxyFlag(t *testing.T) {
	t.Parallel()
	const badName, badCommand = "want a name of letters, digits and underscores, and a command", "want a command behind the ="
	var p proxies
	for _, tt := range []struct{ text, err string }{
		{`a=one 'two three' $HOME`, ""}, {`B_2=one`, ""}, {`a=one`, "the name a is given twice"}, {`=one`, badName}, {`2b=one`, badName}, {`0b=one`, badName}, {`9b=one`, badName}, {`b c=one`, badName},
		{`d=`, badCommand}, {`d=  `, badCommand}, {`d`, badCommand}, {"d=one 'two", "failed to process"},
	} {
		if err := p.Set(tt.text); (err == nil) != (tt.err == "") || err != nil && !strings.HasPrefix(err.Error(), tt.err) {
			t.Errorf("%s: got error %v, want %q", tt.text, err, tt.err)
		}
	}
	want := proxies{{Name: "a", Command: []string{"one", "two three", "$HOME"}}, {Name: "B_2", Command: []string{"one"}}}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
