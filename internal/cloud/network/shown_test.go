package network

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"
)

// sends returns a client that only sends text.
func sends(text string) func(net.Conn) {
	return func(c net.Conn) { _, _ = c.Write([]byte(text)) }
}

// greets returns a client of TLS that shows a name, "" for none.
func greets(ctx context.Context, name string) func(net.Conn) {
	return func(c net.Conn) {
		_ = tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true}).HandshakeContext(ctx) // there is no server
	}
}

// accepting connects to what may be dialled, as connections that accept everything.
func accepting(_ context.Context, d *net.Dialer, address string) (net.Conn, error) {
	if err := d.Control("tcp", address, nil); err != nil {
		return nil, err
	}
	return pretended{address: address, got: &strings.Builder{}}, nil
}

// An answer about a name opens no address that the name was looked up to: what shows no
// name is asked about by its address, also where a rule allows the name.
func TestAskHoldsForTheName(t *testing.T) {
	t.Parallel()
	const address = "203.0.113.5"
	for _, allow := range []string{"", "public.test"} { // the program says yes, or a rule does
		for _, yes := range []bool{false, true} { // the answer about the address
			for name, tt := range map[string]struct {
				port   uint16
				client func(net.Conn)
				asked  string // "": nothing
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
				"TLS that cannot be read":   {443, sends("\x16\x99\x99\x00\x05hello"), "", false},
				"TLS on the port of HTTP":   {80, sends("\x16\x03\x01\x00\x05\x01\n\x00\x00\x00"), address, yes},
				"HTTP of an older language": {80, sends("GET /\r\n"), address, yes},
			} {
				t.Run(fmt.Sprintf("%s/allowed %q/yes %t", name, allow, yes), func(t *testing.T) {
					t.Parallel()
					e, _ := askingEgress(t, Policy{}, allow, "")
					e.Dialer.connect = accepting
					ctx, end := context.WithCancel(t.Context())
					p := &program{}
					done := make(chan struct{})
					go func() {
						defer close(done)
						hosts := []string{"public.test"}
						if yes {
							hosts = append(hosts, address)
						}
						p.serve(ctx, e.Asks, hosts...)
					}()
					defer func() { end(); <-done }()
					if diff := cmp.Diff([]string{address}, ask(t, e, "public.test", dnsmessage.TypeA)); diff != "" {
						t.Fatal(diff)
					}
					p.hosts()
					client, inside := pair(t)
					said := make(chan struct{})
					go func() { defer close(said); defer client.Close(); tt.client(client) }()
					defer func() { _ = inside.Close(); <-said }()
					conn, err := e.connect(t.Context(), inside, netip.AddrPortFrom(netip.MustParseAddr(address), tt.port))
					if conn != nil {
						_ = conn.Close()
					}
					if (err == nil) != tt.ok {
						t.Errorf("got %v, want it to pass: %t", err, tt.ok)
					}
					var want []string
					if tt.asked != "" {
						want = []string{tt.asked}
					}
					if diff := cmp.Diff(want, p.hosts()); diff != "" {
						t.Errorf("asked (-want +got):\n%s", diff)
					}
				})
			}
		}
	}
}
