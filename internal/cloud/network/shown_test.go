package network

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/e2bctl/e2bctl/internal/must"
)

// sends returns a client that only sends text.
func sends(text string) func(net.Conn) {
	return func(c net.Conn) { _, _ = c.Write([]byte(text)) }
}

// greets returns a TLS client that shows a name. "" means that it shows none.
func greets(ctx context.Context, name string) func(net.Conn) {
	return func(c net.Conn) {
		_ = tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true}).HandshakeContext(ctx) // there is no server
	}
}

// TestAskHoldsForTheName checks that an answer about a name does not allow the addresses of the
// name. For a connection that shows no name, the program is asked about the address, even if a rule
// allows the name. The answer about the name is enough only at ports where no connection shows one.
func TestAskHoldsForTheName(t *testing.T) {
	t.Parallel()
	const name, address = "public.test", "203.0.113.5"
	for _, allow := range []string{"", "public.test"} { // the program or a rule allows the name
		for _, yes := range []bool{false, true} { // the answer about the address
			for what, tt := range map[string]struct {
				port   uint16
				client func(net.Conn)
				asked  string // target of the question; "": none
				ok     bool
			}{
				"the name by TLS":           {443, greets(t.Context(), "public.test"), "", true},
				"the name by HTTP":          {80, sends("GET / HTTP/1.1\r\nHost: Public.test:80\r\n\r\n"), "", true},
				"another name by TLS":       {443, greets(t.Context(), "other.test"), "other.test", false},
				"another name by HTTP":      {80, sends("GET / HTTP/1.1\r\nHost: other.test\r\n\r\n"), "other.test", false},
				"TLS without a name":        {443, greets(t.Context(), ""), address, yes},
				"HTTP without a Host":       {80, sends("GET / HTTP/1.0\r\n\r\n"), address, yes},
				"HTTP of an address":        {80, sends("GET / HTTP/1.1\r\nHost: " + address + "\r\n\r\n"), address, yes},
				"SSH on the port of TLS":    {443, sends("SSH-2.0-x\r\n"), address, yes},
				"SSH on the port of HTTP":   {80, sends("SSH-2.0-x\r\n"), address, yes},
				"HTTP on the port of TLS":   {443, sends("GET / HTTP/1.1\r\nHost: public.test\r\n\r\n"), address, yes},
				"another port":              {22, sends(""), address, yes},
				"HTTP on another port":      {8080, sends("GET / HTTP/1.1\r\nHost: public.test\r\n\r\n"), address, yes},
				"HTTP that cannot be read":  {80, sends("GET / HTTP/1.1\r\nHost : public.test\r\n\r\n"), "", false},
				"HTTP after an empty line":  {80, sends("\r\nGET / HTTP/1.1\r\nHost: public.test\r\n\r\n"), "", false},
				"HTTP of two hosts":         {80, sends("GET / HTTP/1.1\r\nHost: public.test\r\nHost: other.test\r\n\r\n"), "", false},
				"TLS that cannot be read":   {443, sends("\x16\x99\x99\x00\x05hello"), "", false},
				"TLS on the port of HTTP":   {80, sends("\x16\x03\x01\x00\x05\x01\n\x00\x00\x00"), address, yes},
				"HTTP of an older language": {80, sends("GET /\r\n"), address, yes},
			} {
				t.Run(fmt.Sprintf("%s/allowed %q/yes %t", what, allow, yes), func(t *testing.T) {
					t.Parallel()
					port := fmt.Sprintf(":%d", tt.port)
					e, _ := askingEgress(t, Policy{}, allow, "")
					connectBy(t, e.Dialer, new(origins).connect)
					ctx, end := context.WithCancel(t.Context())
					p := &program{}
					done := make(chan struct{})
					go func() {
						defer close(done)
						targets := []string{"public.test:443", "public.test:80"}
						if yes {
							targets = append(targets, address+port, name+port)
						}
						p.serve(ctx, e.Asks, targets...)
					}()
					defer func() { end(); <-done }()
					to := netip.MustParseAddr(ask(t, e, "public.test", dnsmessage.TypeA)[0])
					if isStandIn := standInNetwork.Contains(to); isStandIn != (allow == "") || !isStandIn && to.String() != address {
						t.Fatalf("the name has the address %v", to)
					}
					client, inside := pair(t)
					said := make(chan struct{})
					go func() { defer close(said); defer client.Close(); tt.client(client) }()
					defer func() { _ = inside.Close(); <-said }()
					conn, err := e.connect(t.Context(), inside, netip.AddrPortFrom(to, tt.port))
					if conn != nil {
						_ = conn.Close()
					}
					if (err == nil) != tt.ok {
						t.Errorf("got %v, want it to pass: %t", err, tt.ok)
					}
					var want []string
					if allow == "" && (tt.asked == address || tt.ok) {
						want = append(want, name+port)
					}
					if tt.asked != "" && (allow != "" || tt.asked != address || showsName(tt.port)) {
						want = append(want, tt.asked+port)
					}
					if diff := cmp.Diff(want, p.hosts()); diff != "" {
						t.Errorf("asked (-want +got):\n%s", diff)
					}
				})
			}
		}
	}
}

// origins is a server at every address. It answers the first message of each connection, and closes
// the connection.
type origins struct {
	mu   sync.Mutex
	seen []string // first messages, as "address: message"
}

func (o *origins) connect(ctx context.Context, d *net.Dialer, address string) (net.Conn, error) {
	if err := d.Control("tcp", address, nil); err != nil {
		return nil, err
	}
	_, near, far := newDuplex(ctx)
	go func() {
		defer far.Close()
		message := make([]byte, maxPeek)
		n, err := far.Read(message)
		if err != nil {
			return
		}
		o.mu.Lock()
		o.seen = append(o.seen, address+": "+string(message[:n]))
		o.mu.Unlock()
		_, _ = io.WriteString(far, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
	}()
	return near, nil
}

func (o *origins) take() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	seen := o.seen
	o.seen = nil
	return seen
}

// hello returns the first message of a TLS client.
func hello(t *testing.T, name string) string {
	t.Helper()
	near, far := net.Pipe()
	defer far.Close()
	done := make(chan struct{})
	defer func() { <-done }()
	go func() { defer close(done); defer near.Close(); greets(t.Context(), name)(near) }()
	message := make([]byte, maxPeek)
	n, err := far.Read(message)
	must.Do(t, err)
	_ = far.Close()
	return string(message[:n])
}

// TestProxiedConnectionsShowTheirName checks that the name in a request to the proxy proves
// nothing. If the rules allow only the name, the connection leads to the name that it shows, and
// ends if it shows no name or a denied one.
func TestProxiedConnectionsShowTheirName(t *testing.T) {
	t.Parallel()
	const public, api = "203.0.113.5", "203.0.113.6"
	get := func(host string) string { return "GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n" }
	for _, asking := range []bool{false, true} { // a program or a rule allows the names
		for _, tt := range []struct {
			to, sent string
			reached  string // address of the server that was reached; "": none
		}{
			{"public.test:443", hello(t, "public.test"), public + ":443"},
			{"PUBLIC.test.:443", hello(t, "public.test"), public + ":443"},
			{"public.test:443", hello(t, "Public.Test"), public + ":443"},
			{"public.test:443", hello(t, "api.public.test"), api + ":443"},
			{"public.test:443", hello(t, "other.test"), ""},
			{"public.test:443", hello(t, "rebound.test"), ""},
			{"public.test:443", hello(t, ""), ""},
			{"public.test:443", "SSH-2.0-x\r\n", ""},
			{"public.test:443", get("public.test"), ""},
			{"public.test:80", get("public.test"), public + ":80"},
			{"public.test:80", get("api.public.test:80"), api + ":80"},
			{"public.test:80", get("other.test"), ""},
			{"public.test:80", get("203.0.113.5"), ""},
			{"public.test:80", get("http://other.test"), ""},
			{"public.test:80", "GET / HTTP/1.0\r\n\r\n", ""},
			{"public.test:80", "GET http://other.test/ HTTP/1.1\r\nHost: public.test\r\n\r\n", ""},
			{"public.test:80", "SSH-2.0-x\r\n", ""},
			{"public.test:80", hello(t, "public.test"), ""},
			{"public.test:22", "SSH-2.0-x\r\n", ""},
			{"public.test:22", hello(t, "public.test"), ""},
			{"public.test:8080", get("public.test"), ""},
			{"public.test:8443", hello(t, "public.test"), ""},
			{"203.0.113.5:443", hello(t, "other.test"), ""},
			{"203.0.113.5:443", hello(t, ""), ""},
			{"203.0.113.5:22", "SSH-2.0-x\r\n", ""},
			{"203.0.113.77:22", "SSH-2.0-x\r\n", "203.0.113.77:22"},
			{"203.0.113.77:443", hello(t, "other.test"), "203.0.113.77:443"},
			{"listed.test:22", "SSH-2.0-x\r\n", "203.0.113.77:22"},
			{"listed.test:443", "SSH-2.0-x\r\n", "203.0.113.77:443"},
			{"listed.test:443", hello(t, ""), "203.0.113.77:443"},
		} {
			t.Run(fmt.Sprintf("asking %t/%s/%.25q", asking, tt.to, tt.sent), func(t *testing.T) {
				t.Parallel()
				allowed := []string{"public.test", "api.public.test", "listed.test", "rebound.test"}
				yes := []string{"listed.test:22"}
				for _, name := range allowed {
					yes = append(yes, name+":80", name+":443")
				}
				rules, err := ParseRules(true, append(slices.Clone(allowed), "203.0.113.77"), []string{allTraffic})
				if asking {
					rules, err = mustRules(t, true, "203.0.113.77", allTraffic).WithAsking()
				}
				must.Do(t, err)
				servers := &origins{}
				d := &Dialer{Resolver: resolverFunc(func(host string) []string {
					if host == "listed.test" {
						return []string{"203.0.113.77"}
					}
					return world[normalize(host)]
				})}
				recording(t, d)
				connectBy(t, d, servers.connect)
				e := &Egress{Dialer: d, Rules: rules, Denials: &Denials{}, Asks: new(Asks)}
				ctx, end := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); (&program{}).serve(ctx, e.Asks, yes...) }()
				defer func() { end(); <-done }()
				conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", serveProxy(t, NewProxy(e.Dial)))
				must.Do(t, err)
				defer conn.Close()
				fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", tt.to, tt.to)
				from := bufio.NewReader(conn)
				answer, err := http.ReadResponse(from, &http.Request{Method: http.MethodConnect})
				must.Do(t, err)
				_ = answer.Body.Close()
				if answer.StatusCode == http.StatusOK {
					_, _ = io.WriteString(conn, tt.sent)
					_ = conn.(*net.TCPConn).CloseWrite()
					_, _ = io.Copy(io.Discard, from)
				}
				seen := strings.Join(servers.take(), "; ")
				if want := tt.reached + ": "; tt.reached == "" && seen != "" || tt.reached != "" && !strings.HasPrefix(seen, want) {
					t.Errorf("got %d, and %.60q was sent, want %q", answer.StatusCode, seen, tt.reached)
				}
				if tt.reached == "" && e.Denials.Count() == 0 {
					t.Error("no denial was noted, want one")
				}
			})
		}
	}
}
