package network

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

const (
	peerName = "8080-i1a2.cloud.test"
	peerPort = 4000
)

// peering returns an egress path whose peers answer with their name and the headers.
func peering(rules *Rules) *Egress {
	return &Egress{Dialer: &Dialer{Resolver: world}, Rules: rules, Denials: &Denials{}, Peers: &Peers{
		Port: peerPort,
		Is:   func(host string) bool { return strings.HasSuffix(host, "-i1a2.cloud.test") },
		Serve: func(conn net.Conn, name string, headers []Header) {
			go func() {
				defer conn.Close()
				for _, h := range headers {
					name += " " + h.Name
				}
				_, _ = io.WriteString(conn, name)
			}()
		},
	}}
}

// TestPeerRules checks that the name of a sandbox leads to that sandbox if the rules for names
// allow it, with or without the cloud's port. At other ports it leads nowhere.
func TestPeerRules(t *testing.T) {
	t.Parallel()
	const all = "0.0.0.0/0"
	tests := []struct {
		offline     bool
		allow, deny string
		want        string // rule that denies the name; "": none
	}{
		{},
		{deny: "127.0.0.0/8"},
		{offline: true, want: ruleOff},
		{offline: true, allow: "127.0.0.0/8", want: ruleOff},
		{deny: all, want: ruleDenied},
		{deny: all, allow: "*.cloud.test"},
		{deny: all, allow: peerName},
		{deny: all, allow: peerName + ":4000"},
		{deny: all, allow: peerName + ":4001", want: ruleDenied},
		{deny: all, allow: "8081-i1a2.cloud.test:4000", want: ruleDenied},
	}
	for _, test := range tests {
		e := peering(mustRules(t, !test.offline, test.allow, test.deny))
		conn, err := e.Dial(t.Context(), "8080-I1A2.cloud.test.", peerPort)
		denied, _ := errors.AsType[*DeniedError](err)
		switch {
		case test.want == "" && err == nil:
			if got, _ := io.ReadAll(conn); string(got) != peerName {
				t.Errorf("%+v: reached %q", test, got)
			}
			_ = conn.Close()
		case denied == nil || denied.Rule != test.want || e.Denials.Count() != 1:
			t.Errorf("%+v: got %v and %d denials", test, err, e.Denials.Count())
		}
		want := "RCodeNameError"
		if test.want == "" {
			want = "127.0.0.1"
		}
		if got := ask(t, e, peerName, dnsmessage.TypeA); len(got) != 1 || got[0] != want {
			t.Errorf("%+v: the name has the addresses %q, want %s", test, got, want)
		}
		if _, err := e.Dial(t.Context(), peerName, 443); err == nil {
			t.Errorf("%+v: another port than the cloud's was connected to", test)
		}
	}
}

// TestPeerHeaders checks that a header rule may have a port if it is for the name of a sandbox, as
// clients write it, and for no other host.
func TestPeerHeaders(t *testing.T) {
	t.Parallel()
	var none *Rules
	rules, err := none.WithHeaders(map[string]map[string]string{
		peerName + ":4000": {"A": "b"}, "*.cloud.test": {"C": "d"},
	})
	must.Do(t, err)
	for host, want := range map[string]string{peerName: peerName + " A", "9-i1a2.cloud.test": "9-i1a2.cloud.test C"} {
		conn, err := peering(rules).Dial(t.Context(), host, peerPort)
		must.Do(t, err)
		if got, _ := io.ReadAll(conn); string(got) != want {
			t.Errorf("got %q, want %q", got, want)
		}
		_ = conn.Close()
	}
	conn, err := peering(nil).Dial(t.Context(), peerName, peerPort)
	must.Do(t, err)
	if got, _ := io.ReadAll(conn); string(got) != peerName {
		t.Errorf("without rules: got %q, want no headers", got)
	}
	_ = conn.Close()
	for _, entry := range []string{"example.com:443", "8080-.test:4000", "a-i1a2.cloud.test:4000", "8080-i1a2:4000", peerName + ":0", peerName + ":", "8080-i1a2.1:4000", "*." + peerName + ":4000", "-i1a2.cloud.test:4000", "8080-i b.cloud.test:4000"} {
		if _, err := none.WithHeaders(map[string]map[string]string{entry: {"A": "b"}}); err == nil {
			t.Errorf("headers for %q were accepted", entry)
		}
		if _, err := ParseRules(true, []string{entry}, []string{"0.0.0.0/0"}); err == nil {
			t.Errorf("a rule that allows %q was accepted", entry)
		}
	}
}

// TestRelay checks that the relay connects to the name that a client shows, or sends the client the
// reason of a failure.
func TestRelay(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 1)
	relay := &Relay{Port: peerPort, Dial: func(_ context.Context, host string, port uint16) (net.Conn, error) {
		asked <- withPort(host, port)
		if host != peerName {
			return nil, errors.New("nobody has that name")
		}
		_, near, far := newDuplex(context.Background())
		go func() {
			defer far.Close()
			if r, err := http.ReadRequest(bufio.NewReader(far)); err == nil {
				_, _ = io.WriteString(far, "HTTP/1.0 200 OK\r\n\r\n"+r.URL.Path)
			}
		}()
		return near, nil
	}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	served := make(chan error)
	go func() { served <- relay.Serve(l) }()
	t.Cleanup(func() {
		_ = l.Close()
		<-served
	})
	get := func(host string) string {
		t.Helper()
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Addr().String()+"/path", nil)
		r.Host = host
		response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
		must.Do(t, err)
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		return response.Status + " " + string(body)
	}
	if got := get(peerName + ":4000"); got != "200 OK /path" || patience.Receive(t, "the dialled host", asked) != peerName+":4000" {
		t.Errorf("got %q", got)
	}
	if got := get("other.test"); !strings.HasPrefix(got, "403 Forbidden") || !strings.Contains(got, "nobody has that name") {
		t.Errorf("another name: got %q, want the reason", got)
	}
	patience.Receive(t, "the dialled host", asked)
	if got := get("127.0.0.1:4000"); !strings.Contains(got, "network: "+l.Addr().String()+" is not reachable") || !strings.Contains(got, ruleNoPeer) {
		t.Errorf("no name: got %q, want the address and the reason", got)
	}
	_, err = tls.Dial("tcp", l.Addr().String(), &tls.Config{ServerName: "other.test"})
	if err == nil || !strings.Contains(err.Error(), "access denied") || patience.Receive(t, "the dialled host", asked) != "other.test:4000" {
		t.Errorf("TLS: got %v, want access denied", err)
	}
}
