package network

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/e2bctl/e2bctl/internal/must"
)

func mustRules(t *testing.T, internet bool, allow, deny string) *Rules {
	t.Helper()
	r, err := ParseRules(internet, strings.Fields(allow), strings.Fields(deny))
	must.Do(t, err)
	return r
}

// world contains the names that exist in these tests.
var world = names{
	"public.test": {"203.0.113.5"}, "api.public.test": {"203.0.113.6"}, "other.test": {"198.51.100.7"},
	"inner.test": {"10.1.2.3"}, "rebound.test": {"127.0.0.1"}, "own.test": {"192.0.2.10"}, "both.test": {"10.1.2.3", "203.0.113.5"}, "PUBLIC.test.": {"203.0.113.5"},
}

// TestRules checks that rules that allow take precedence over rules that deny, and rules about
// addresses over rules about names. Addresses that no sandbox may reach stay denied.
func TestRules(t *testing.T) {
	t.Parallel()
	const all = "0.0.0.0/0"
	tests := []struct {
		offline     bool
		allow, deny string
		policy      Policy
		host        string
		rule        string
	}{
		{host: "public.test"},
		{offline: true, host: "public.test", rule: ruleOff},
		{offline: true, host: "203.0.113.5", rule: ruleOff},
		{offline: true, host: "2001:db8::5", rule: ruleOff},
		{offline: true, allow: "203.0.113.0/24", host: "203.0.113.5"},
		{offline: true, allow: "203.0.113.0/24", host: "198.51.100.7", rule: ruleOff},
		{deny: all, host: "public.test", rule: ruleDenied},
		{deny: all, host: "2001:db8::5", rule: ruleDenied},
		{deny: "203.0.113.0/24", host: "public.test", rule: ruleDenied},
		{deny: "203.0.113.0/24", host: "other.test"},
		{deny: "203.0.113.5", host: "::ffff:203.0.113.5", rule: ruleDenied},
		{deny: "203.0.113.5", host: "64:ff9b::203.0.113.5", rule: ruleDenied},
		{deny: "203.0.113.0/24", allow: "203.0.113.5", host: "public.test"},
		{deny: "203.0.113.0/24", allow: "203.0.113.5", host: "203.0.113.6", rule: ruleDenied},
		{deny: all, allow: "public.test", host: "public.test"},
		{deny: all, allow: "public.test", host: "PUBLIC.test."},
		{deny: all, allow: "public.test", host: "api.public.test", rule: ruleDenied},
		{deny: all, allow: "public.test", host: "203.0.113.5", rule: ruleDenied},
		{deny: all, allow: "*.public.test", host: "api.public.test"},
		{deny: all, allow: "*.public.test", host: "public.test", rule: ruleDenied},
		{deny: all, allow: "*.public.test", host: "notpublic.test", rule: ruleDenied},
		{deny: all, allow: "*", host: "other.test"},
		{deny: all, allow: "*", host: "198.51.100.7", rule: ruleDenied},
		{deny: all, allow: all, host: "other.test", rule: ruleDenied}, // by address only: names are not looked up
		{deny: all, allow: all, host: "198.51.100.7"},
		{deny: all, allow: "inner.test", host: "inner.test"},
		{deny: all, allow: "inner.test", policy: Policy{DenyPrivate: true}, host: "inner.test", rule: rulePrivate},
		{allow: "10.0.0.0/8", policy: Policy{DenyPrivate: true}, host: "inner.test"},
		{allow: all, policy: Policy{DenyPrivate: true}, host: "inner.test", rule: rulePrivate},
		{deny: all, allow: "* " + all + " 127.0.0.0/8 192.0.2.10 169.254.0.0/16", host: "rebound.test", rule: ruleLoopback},
		{deny: all, allow: "* " + all + " 127.0.0.0/8 192.0.2.10 169.254.0.0/16", host: "own.test", rule: ruleOwn},
		{deny: all, allow: "* " + all + " 127.0.0.0/8 192.0.2.10 169.254.0.0/16", host: "169.254.169.254", rule: ruleMetadata},
		{deny: all, allow: "* " + all + " 127.0.0.0/8 192.0.2.10 169.254.0.0/16", host: "::ffff:127.0.0.1", rule: ruleLoopback},
	}
	for _, tt := range tests {
		d := &Dialer{Policy: tt.policy, Resolver: world}
		recording(t, d)
		e := &Egress{Dialer: d, Rules: mustRules(t, !tt.offline, tt.allow, tt.deny), Denials: &Denials{}}
		conn, err := e.Dial(t.Context(), tt.host, portHTTPS)
		if conn != nil {
			_ = conn.Close()
		}
		denied, _ := errors.AsType[*DeniedError](err)
		switch {
		case tt.rule == "" && err != nil:
			t.Errorf("%+v: got %v, want no error", tt, err)
		case tt.rule != "" && (denied == nil || denied.Rule != tt.rule):
			t.Errorf("%+v: got %v, want a denial by %q", tt, err, tt.rule)
		}
	}
	for _, rules := range []struct {
		*Rules
		closed bool
	}{
		{mustRules(t, false, "", ""), true},
		{mustRules(t, false, "10.0.0.1", ""), false},
		{mustRules(t, true, "", "10.0.0.0/8"), false},
		{nil, false},
	} {
		if got := rules.Rules.closed(); got != rules.closed {
			t.Errorf("%+v: closed = %v, want %v", rules.Rules, got, rules.closed)
		}
	}
}

// TestRebinding checks that a name is looked up again for each connection, and that an earlier
// lookup is ignored.
func TestRebinding(t *testing.T) {
	t.Parallel()
	var asked int
	d := &Dialer{Resolver: resolverFunc(func(string) []string {
		if asked++; asked == 1 {
			return []string{"203.0.113.5"}
		}
		return []string{"127.0.0.1"}
	})}
	dialled := recording(t, d)
	e := &Egress{Dialer: d, Denials: &Denials{}}
	if got := ask(t, e, "rebinding.test", 1); !slices.Equal(got, []string{"203.0.113.5"}) {
		t.Errorf("first %v, want %v", got, []string{"203.0.113.5"})
	}
	_, err := e.Dial(t.Context(), "rebinding.test", 80)
	if denied, ok := errors.AsType[*DeniedError](err); !ok || denied.Rule != ruleLoopback || len(*dialled) > 0 {
		t.Errorf("%v, dialled %v, want a *DeniedError of the rule %v and none", err, *dialled, ruleLoopback)
	}
}

type resolverFunc func(host string) []string

func (f resolverFunc) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	return names{host: f(host)}.LookupNetIP(ctx, network, host)
}

func TestDenialsAreBounded(t *testing.T) {
	t.Parallel()
	var told []Denial
	d := &Denials{Tell: func(d Denial) { told = append(told, d) }}
	for i := range 3 * maxDenials {
		for range 3 {
			d.Add(Denial{Host: "denied.test", Port: uint16(i)})
		}
	}
	if d.Count() != 9*maxDenials || len(told) != maxDenials {
		t.Errorf("%d counted, %d told, want %d and %d", d.Count(), len(told), 9*maxDenials, maxDenials)
	}
}

// from connects client to a connection that looks as if it came from inside and led to address: its
// local address, which Connect takes for the destination, is address. If the client talks, from
// waits until the server answers.
func from(t *testing.T, e *Egress, address string, talks bool, client func(net.Conn)) error {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Do(t, err)
	defer l.Close()
	var talking sync.WaitGroup
	talking.Go(func() {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		client(conn)
	})
	defer talking.Wait()
	inside, err := l.Accept()
	must.Do(t, err)
	defer inside.Close()
	outside, err := e.connect(t.Context(), inside.(*net.TCPConn), netip.MustParseAddrPort(address))
	if err != nil {
		return err
	}
	defer outside.Close()
	if talks {
		if _, err := outside.Read(make([]byte, 1)); err != nil {
			t.Errorf("the server does not answer: %v", err)
		}
	}
	return nil
}

// client is the behaviour of a program in a sandbox on its end of a connection.
type client func(*testing.T, net.Conn)

// getting returns a client that requests a page of host, and fails the test for every page except a
// refusal.
func getting(host string) client {
	return func(t *testing.T, c net.Conn) {
		t.Helper()
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return // it was allowed, but leads nowhere
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusForbidden || !strings.Contains(string(body), "no connection to "+host) {
			t.Errorf("got %d %q, want status http.StatusForbidden and %q in it", resp.StatusCode, body, "no connection to "+host)
		}
	}
}

// greeting returns a client that begins TLS with the server name, and fails the test for every TLS
// error except a refusal.
func greeting(name string) client {
	return func(t *testing.T, c net.Conn) {
		t.Helper()
		err := tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: name == ""}).HandshakeContext(t.Context())
		if err == nil {
			t.Error("there is no server")
			return
		}
		if strings.Contains(err.Error(), "tls: ") && !strings.Contains(err.Error(), "access denied") {
			t.Error(err)
		}
	}
}

func TestConnect(t *testing.T) {
	t.Parallel()
	garbage := func(_ *testing.T, c net.Conn) { _, _ = io.WriteString(c, "SSH-2.0-x\r\n\r\n") }
	silent := func(_ *testing.T, c net.Conn) { _ = c.(*net.TCPConn).CloseWrite(); _, _ = io.Copy(io.Discard, c) }
	never := func(_ *testing.T, c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	const all = "0.0.0.0/0"
	tests := []struct {
		name, allow, deny string
		to                string
		client            client
		reached           string // address of the server that was reached; "": none
	}{
		{"anything", "", "", "203.0.113.9:80", never, "203.0.113.9:80"},
		{"server speaks first", "", "", "203.0.113.9:443", never, "203.0.113.9:443"},
		{"address", "203.0.113.9", all, "203.0.113.9:443", never, "203.0.113.9:443"},
		{"host", "public.test", all, "203.0.113.9:80", getting("public.test"), "203.0.113.5:80"},
		{"host and port", "public.test", all, "203.0.113.9:80", getting("PUBLIC.test:80"), "203.0.113.5:80"},
		{"other host", "public.test", all, "203.0.113.5:80", getting("other.test"), ""},
		{"host is an address", "public.test", all, "203.0.113.5:80", getting("203.0.113.5"), ""},
		{"server name", "*.public.test", all, "203.0.113.9:443", greeting("api.public.test"), "203.0.113.6:443"},
		{"other server name", "public.test", all, "203.0.113.5:443", greeting("other.test"), ""},
		{"no server name", "*", all, "203.0.113.5:443", greeting(""), ""},
		{"name of loopback", "*", all, "203.0.113.5:80", getting("rebound.test"), ""},
		{"address never reachable", "*", all, "169.254.169.254:80", never, ""},
		{"other port", "public.test", all, "203.0.113.5:22", never, ""},
		{"denied address", "", "203.0.113.0/24", "203.0.113.5:80", getting("other.test"), ""},
		{"garbage", "*", all, "203.0.113.5:443", garbage, ""},
		{"garbage HTTP", "*", all, "203.0.113.5:80", garbage, ""},
		{"nothing", "*", all, "203.0.113.5:443", silent, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := &Dialer{Resolver: world}
			recording(t, d)
			var reached string
			servers := &origins{}
			connectBy(t, d, func(ctx context.Context, nd *net.Dialer, address string) (net.Conn, error) {
				conn, err := servers.connect(ctx, nd, address)
				if err == nil {
					reached = address
				}
				return conn, err
			})
			denials := &Denials{}
			e := &Egress{Dialer: d, Rules: mustRules(t, true, tt.allow, tt.deny), Denials: denials}
			ended := make(chan struct{})
			talks := tt.reached != "" && (strings.HasPrefix(tt.name, "host") || strings.HasPrefix(tt.name, "server name"))
			err := from(t, e, tt.to, talks, func(c net.Conn) {
				defer close(ended)
				if tt.reached != "" && !talks {
					return
				}
				tt.client(t, c)
			})
			<-ended
			if reached != tt.reached || (err == nil) != (tt.reached != "") {
				t.Errorf("reached %q, %v, want %q, and an error where that is empty", reached, err, tt.reached)
			}
			if (denials.Count() > 0) != (tt.reached == "") {
				t.Errorf("%d denials, want some: %v", denials.Count(), tt.reached == "")
			}
			if got := servers.take(); strings.HasPrefix(tt.name, "host") && talks && (len(got) != 1 || !strings.HasPrefix(got[0], tt.reached+": GET / HTTP/1.1\r\nHost: ")) {
				t.Errorf("what was read is lost: %q", got)
			}
		})
	}
}

// TestConnectRefuses checks that the wait for a silent client ends with the sandbox, and that an
// invalid host name is not looked up.
func TestConnectRefuses(t *testing.T) {
	t.Parallel()
	d := &Dialer{Resolver: world}
	recording(t, d)
	e := &Egress{Dialer: d, Rules: mustRules(t, true, "*", "0.0.0.0/0"), Denials: &Denials{}}
	near, far := net.Pipe()
	defer far.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := listen(ctx, near, portHTTP); err == nil {
		t.Error("it was listened to")
	}
	for _, host := range []string{"", "a b.test", "a.test\r\nX: y", "a..test", "[203.0.113.5]", strings.Repeat("a", 64) + ".test"} {
		if _, err := e.Dial(t.Context(), host, 1); err == nil || !strings.Contains(err.Error(), "not an address") {
			t.Errorf("%q: got %v, want an error with %q", host, err, "not an address")
		}
	}
}

// TestUpstreamProxy checks ProxyNames on a machine behind a proxy: the proxy receives the name. A
// name that resolves on this machine to a denied address is refused before.
func TestUpstreamProxy(t *testing.T) {
	t.Parallel()
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := (&http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}).BasicAuth()
		asked = append(asked, r.Method+" "+r.Host+" "+user+" "+password)
		if r.Host == "refused.test:443" {
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 200 Connected\r\n\r\nhello first")
	}))
	defer proxy.Close()
	u, err := url.Parse(proxy.URL)
	must.Do(t, err)
	u.User = url.UserPassword("me", "secret")
	d := &Dialer{Resolver: world, ProxyNames: true, Proxy: func(address string) (*url.URL, error) {
		switch {
		case strings.HasPrefix(address, "public.test:"):
			return nil, nil // NO_PROXY
		case strings.HasPrefix(address, "socks.test:"):
			return url.Parse("socks5://me:secret@proxy.test:1080")
		case strings.HasPrefix(address, "unreadable.test:"):
			unfinished := "["
			return url.Parse("http://me:secret@" + unfinished)
		}
		return u, nil
	}}
	dialled := recording(t, d)
	e := &Egress{Dialer: d, Denials: &Denials{}}
	for host, want := range map[string]string{
		"only-the-proxy-knows.test": "", "other.test": "",
		"rebound.test": "loopback", "127.0.0.1": "loopback", "own.test": "this machine",
		"refused.test": "407", "socks.test": `"socks5" are not supported`, "unreadable.test": "the proxy of this machine's environment",
	} {
		conn, err := e.Dial(t.Context(), host, 443)
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: got %v, want an error with %q and no %q in it", host, err, want, "secret")
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", host, err)
			continue
		}
		if got, err := io.ReadAll(conn); string(got) != "hello first" || err != nil {
			t.Errorf("%s: got %q, %v, want %q and no error", host, got, err, "hello first")
		}
		_ = conn.Close()
	}
	slices.Sort(asked)
	if diff := cmp.Diff([]string{"CONNECT only-the-proxy-knows.test:443 me secret", "CONNECT other.test:443 me secret", "CONNECT refused.test:443 me secret"}, asked); diff != "" {
		t.Errorf("asked of the proxy (-want +got):\n%s", diff)
	}
	if conn, err := e.Dial(t.Context(), "public.test", 443); err != nil || len(*dialled) != 1 {
		t.Errorf("%v, dialled %v, want one and no error", err, *dialled)
	} else {
		_ = conn.Close()
	}
	denied := &Egress{Dialer: d, Rules: mustRules(t, true, "public.test", "0.0.0.0/0"), Denials: &Denials{}}
	if _, err := denied.Dial(t.Context(), "other.test", 443); err == nil {
		t.Error("the rules do not bind what goes through the proxy")
	}
}

// asking returns a proxy that records its requests, answers with status, and connects to nothing.
// It listens on 127.0.0.1.
func asking(t *testing.T, status int) (proxy *url.URL, asked func() []string) {
	t.Helper()
	var mu sync.Mutex
	var all []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, r.Method+" "+r.Host)
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	must.Do(t, err)
	return u, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// TestNumericNames checks that a name that a proxy would read as a loopback, metadata or private
// address never reaches the proxy, under any rules. It is not looked up either.
func TestNumericNames(t *testing.T) {
	t.Parallel()
	proxy, asked := asking(t, http.StatusOK)
	anything := resolverFunc(func(string) []string { return []string{"203.0.113.5"} })
	for _, d := range []*Dialer{
		{Resolver: anything},
		{Resolver: anything, Proxy: func(string) (*url.URL, error) { return proxy, nil }},
		{Resolver: names{}, ProxyNames: true, Proxy: func(string) (*url.URL, error) { return proxy, nil }},
	} {
		dialled := recording(t, d)
		e := &Egress{Dialer: d, Rules: mustRules(t, true, "*", "0.0.0.0/0"), Denials: &Denials{}}
		hosts := []string{"127.1", "2130706433", "0x7f000001", "0X7F.1", "0177.0.0.1", "0", "2852039166", "127.0.0.1.", "10.1", "a.test.1", "a.0xtest"}
		for _, host := range hosts {
			_, err := e.Dial(t.Context(), host, 80)
			if denied, ok := errors.AsType[*DeniedError](err); !ok || denied.Rule != ruleNumeric || denied.Host != host {
				t.Errorf("got %v, want a denial of %s by %q", err, host, ruleNumeric)
			}
			if got := ask(t, e, strings.TrimSuffix(host, "."), dnsmessage.TypeA); !slices.Equal(got, []string{"RCodeNameError"}) {
				t.Errorf("%s resolves to %v, want %q", host, got, []string{"RCodeNameError"})
			}
			if _, err := ParseRules(true, []string{host}, []string{"0.0.0.0/0"}); err == nil && host != "127.0.0.1." {
				t.Errorf("%s can be a rule", host)
			}
			ended := make(chan struct{})
			err = from(t, e, "203.0.113.9:80", false, func(c net.Conn) {
				defer close(ended)
				fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host)
				_, _ = io.Copy(io.Discard, c)
			})
			<-ended
			if _, ok := errors.AsType[*DeniedError](err); !ok {
				t.Errorf("Host: %s: %v, want a *DeniedError", host, err)
			}
		}
		if n := e.Denials.Count(); n != 2*len(hosts) {
			t.Errorf("%d denials were counted, want %d", n, 2*len(hosts))
		}
		if got := asked(); len(got) > 0 || len(*dialled) > 0 {
			t.Errorf("the proxy was asked %v, dialled %v, want nothing", got, *dialled)
		}
	}
}

// TestProxyGetsCheckedAddress checks that a proxy receives a checked address, and another checked
// address if it cannot reach the first one. The proxy's own lookup of the name does not matter.
func TestProxyGetsCheckedAddress(t *testing.T) {
	t.Parallel()
	proxy, asked := asking(t, http.StatusForbidden)
	d := &Dialer{Resolver: world, Proxy: func(string) (*url.URL, error) { return proxy, nil }}
	recording(t, d)
	e := &Egress{Dialer: d, Rules: mustRules(t, true, "", "10.0.0.0/8"), Denials: &Denials{}}
	for _, host := range []string{"public.test", "both.test", "rebound.test", "own.test", "inner.test", "2001:db8::5", "::ffff:203.0.113.7", "10.1.2.3"} {
		_, err := e.Dial(t.Context(), host, 443)
		_, denied := errors.AsType[*DeniedError](err)
		if wanted := slices.Contains([]string{"rebound.test", "own.test", "inner.test", "10.1.2.3"}, host); denied != wanted || err == nil {
			t.Errorf("%s: got %v, want a denial: %v", host, err, wanted)
		}
		for _, want := range []string{"it answered 403", "local.WithProxyNames"} {
			if !denied && !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("%s: got %v, want an error with %q", host, err, want)
			}
		}
	}
	want := []string{"CONNECT 203.0.113.5:443", "CONNECT 203.0.113.5:443", "CONNECT [2001:db8::5]:443", "CONNECT 203.0.113.7:443"}
	if diff := cmp.Diff(want, asked()); diff != "" {
		t.Errorf("asked of the proxy (-want +got):\n%s", diff)
	}
	several := &Dialer{Resolver: names{"several.test": {"203.0.113.1", "127.0.0.1", "203.0.113.2"}}, Proxy: d.Proxy}
	recording(t, several)
	if _, err := dial(t, several, "several.test", 1); err == nil {
		t.Error("the proxy refused both")
	}
	if diff := cmp.Diff(append(want, "CONNECT 203.0.113.1:1", "CONNECT 203.0.113.2:1"), asked()); diff != "" {
		t.Errorf("asked of the proxy (-want +got):\n%s", diff)
	}
}

// TestNamesThatOnlyTheProxyKnows checks when a name that does not resolve on this machine is passed
// to a proxy: only if no address is denied and the proxy is on another machine. A proxy on this
// machine reaches loopback.
func TestNamesThatOnlyTheProxyKnows(t *testing.T) {
	t.Parallel()
	const all = "0.0.0.0/0"
	tests := []struct {
		name        string
		allow, deny string
		policy      Policy
		elsewhere   bool // the proxy is on another machine
		names       bool // value of ProxyNames
		rule        string
	}{
		{name: "proxy on this machine", rule: ruleProxyHere},
		{name: "proxy on this machine, the name allowed", allow: "unknown.test", deny: all, rule: ruleProxyHere},
		{name: "proxy elsewhere", elsewhere: true},
		{name: "name allowed", allow: "unknown.test", deny: all, elsewhere: true},
		{name: "private networks denied to all", policy: Policy{DenyPrivate: true}, elsewhere: true, rule: ruleUnchecked},
		{name: "private networks denied to all, the name allowed", allow: "unknown.test", deny: all, policy: Policy{DenyPrivate: true}, elsewhere: true, rule: ruleUnchecked},
		{name: "private networks denied to this one", deny: "10.0.0.0/8 192.168.0.0/16", elsewhere: true, rule: ruleUnchecked},
		{name: "everything denied", deny: all, elsewhere: true, names: true, rule: ruleDenied},
		{name: "names passed on", deny: "10.0.0.0/8", policy: Policy{DenyPrivate: true}, names: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			proxy, asked := asking(t, http.StatusForbidden)
			d := &Dialer{Policy: tt.policy, Resolver: names{}, ProxyNames: tt.names, Proxy: func(string) (*url.URL, error) { return proxy, nil }}
			recording(t, d)
			if tt.elsewhere {
				proxy.Host = net.JoinHostPort(elsewhere, proxy.Port())
			}
			e := &Egress{Dialer: d, Rules: mustRules(t, true, tt.allow, tt.deny), Denials: &Denials{}}
			_, err := e.Dial(t.Context(), "unknown.test", 443)
			denied, ok := errors.AsType[*DeniedError](err)
			if tt.rule == "" {
				if got := asked(); ok || !slices.Equal(got, []string{"CONNECT unknown.test:443"}) {
					t.Errorf("got %v, asked %q, want no denial and %q", err, got, "CONNECT unknown.test:443")
				}
				return
			}
			if !ok || denied.Rule != tt.rule || len(asked()) > 0 {
				t.Errorf("got %v, want %q; asked %v", err, tt.rule, asked())
			}
			if tt.rule == ruleDenied {
				return
			}
			if dns, ok := errors.AsType[*net.DNSError](err); !ok || !dns.IsNotFound {
				t.Errorf("got %v, want a *net.DNSError that says not found", err)
			}
			if want := "local.WithProxyNames"; !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an error that says what to do, with %q", err, want)
			}
		})
	}
}

func TestEnvironmentProxy(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "")
	t.Setenv("https_proxy", "")
	if EnvironmentProxy() != nil {
		t.Error("a proxy from nowhere")
	}
	t.Setenv("HTTPS_PROXY", "http://proxy.test:3128")
	t.Setenv("NO_PROXY", "direct.test")
	for address, want := range map[string]string{"a.test:22": "http://proxy.test:3128", "direct.test:443": "<nil>", "localhost:1": "<nil>", "127.0.0.1:1": "<nil>"} {
		if got, err := EnvironmentProxy()(address); err != nil || fmt.Sprint(got) != want {
			t.Errorf("%s: got %v, %v, want %v and no error", address, got, err, want)
		}
	}
}

func FuzzListen(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"), false)
	f.Add([]byte{22, 3, 1, 0, 4, 1, 0, 0, 0}, true)
	f.Fuzz(func(t *testing.T, data []byte, secure bool) {
		near, far := net.Pipe()
		defer near.Close()
		var writing sync.WaitGroup
		defer writing.Wait()
		writing.Go(func() { defer far.Close(); _, _ = far.Write(data) })
		port := uint16(portHTTP)
		if secure {
			port = portHTTPS
		}
		s, err := listen(t.Context(), near, port)
		_ = near.Close()
		if err == nil && (s.name == "" || !strings.HasPrefix(string(data), string(s.bytes))) {
			t.Errorf("name %q, bytes %q", s.name, s.bytes)
		}
	})
}

// BenchmarkDial measures the check of one connection, including the lookup of this machine's own
// addresses.
func BenchmarkDial(b *testing.B) {
	d := &Dialer{Resolver: world, connect: func(context.Context, *net.Dialer, string) (net.Conn, error) {
		return struct{ net.Conn }{}, nil
	}}
	e := &Egress{Dialer: d, Denials: &Denials{}}
	for b.Loop() {
		_, err := e.Dial(b.Context(), "203.0.113.5", 443)
		must.Do(b, err)
	}
}

// TestLocalNamesStayHere checks that names of a machine itself or of its network are not passed to
// a proxy, because they would lead to the proxy's machine. Their addresses on this machine may be
// reached.
func TestLocalNamesStayHere(t *testing.T) {
	t.Parallel()
	for _, host := range []string{
		"localhost", "LOCALHOST.", "localhost.localdomain", "localhost.example.test", "db.localhost", "a.b.Localhost.", "x.localhost.test",
		"localhost4", "localhost4.localdomain4", "localhost6.localdomain6", "host.localdomain", "ip6-localhost", "ip6-loopback", "broadcasthost", "metadata", "intranet", "intranet.",
	} {
		for _, tt := range []struct {
			names  bool     // value of ProxyNames
			here   []string // addresses of the name on this machine
			denied bool
		}{
			{names: true, denied: true},
			{names: true, here: []string{"203.0.113.5"}, denied: true},
			{names: true, here: []string{"10.1.2.3"}, denied: true},
			{names: false, denied: true},
			{names: false, here: []string{"203.0.113.5"}},
		} {
			proxy, asked := asking(t, http.StatusForbidden)
			d := &Dialer{Resolver: resolverFunc(func(string) []string { return tt.here }), ProxyNames: tt.names, Proxy: func(string) (*url.URL, error) { return proxy, nil }}
			recording(t, d)
			proxy.Host = net.JoinHostPort(elsewhere, proxy.Port())
			e := &Egress{Dialer: d, Denials: &Denials{}}
			_, err := e.Dial(t.Context(), host, 443)
			denied, ok := errors.AsType[*DeniedError](err)
			switch got := asked(); {
			case tt.denied && (!ok || denied.Rule != ruleLocalName || len(got) > 0):
				t.Errorf("%s %+v: got %v, and the proxy was asked %v, want a denial and nothing", host, tt, err, got)
			case !tt.denied && !slices.Equal(got, []string{"CONNECT 203.0.113.5:443"}):
				t.Errorf("%s %+v: got %v, and the proxy was asked %v, want the address", host, tt, err, got)
			}
		}
	}
	d := &Dialer{Resolver: resolverFunc(func(string) []string { return []string{"203.0.113.5"} }), ProxyNames: true, Proxy: func(string) (*url.URL, error) { return nil, nil }}
	dialled := recording(t, d)
	conn, err := dial(t, d, "intranet", 443)
	must.Do(t, err)
	if _ = conn.Close(); !slices.Equal(*dialled, []string{"203.0.113.5:443"}) {
		t.Errorf("without a proxy: dialled %q, want the address", *dialled)
	}
	for _, host := range []string{"localhosts.test", "mylocalhost.test", "local.test", "nolocaldomain.test"} {
		if local(host) {
			t.Errorf("%s is taken for a name of the machine itself", host)
		}
	}
}
