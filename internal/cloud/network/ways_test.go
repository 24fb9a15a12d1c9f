package network

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// The tests of this file run before the parallel ones: a mistake that they find at once would make some of
// those wait.

// TestDeniedClientsLearnWhy checks that a program whose connection is denied receives the reason in the
// protocol of the port, and which denial is noted, for each way to a connection.
func TestDeniedClientsLearnWhy(t *testing.T) {
	t.Parallel()
	private := Policy{DenyPrivate: true}
	const get, page, alert = "GET / HTTP/1.1\r\nHost: other.test\r\n\r\n", "HTTP/1.1 403 Forbidden", string("\x15\x03\x03\x00\x02\x02\x31")
	proxy := &url.URL{Scheme: "http", Host: "127.0.0.1:1"}
	for name, tt := range map[string]struct {
		policy   Policy
		rules    *Rules
		proxy    *url.URL
		to, sent string
		want     string // the answer begins with it
		denied   string // rule of the noted denial
	}{
		"a name":                        {Policy{}, mustRules(t, true, "public.test", allTraffic), nil, "203.0.113.5:80", get, page, ruleDenied},
		"a name, offline":               {Policy{}, mustRules(t, false, "", ""), nil, "203.0.113.5:80", get, page, ruleOff},
		"a name, in TLS":                {Policy{}, mustRules(t, true, "public.test", allTraffic), nil, "203.0.113.5:443", hello(t, "other.test"), alert, ruleDenied},
		"a private network":             {private, nil, nil, "10.1.2.3:80", get, page, rulePrivate},
		"a private network, in TLS":     {private, nil, nil, "10.1.2.3:443", hello(t, "other.test"), alert, rulePrivate},
		"a network of the rules":        {Policy{}, mustRules(t, true, "", "10.0.0.0/8"), nil, "10.1.2.3:80", get, page, ruleDenied},
		"a network, and no name":        {private, nil, nil, "10.1.2.3:80", "SSH-2.0-x\r\n", "", rulePrivate},
		"a network, and half a message": {private, nil, nil, "10.1.2.3:80", "GET / HT", "", rulePrivate},
		"half a name":                   {Policy{}, mustRules(t, true, "public.test", allTraffic), nil, "203.0.113.5:80", "GET / HT", "", ruleDenied},
		"half a name, offline, in TLS":  {Policy{}, mustRules(t, false, "", ""), nil, "203.0.113.5:443", "\x16\x03", "", ruleOff},
		"a proxy, and half a message":   {Policy{}, nil, proxy, "203.0.113.5:80", "GET / HT", "", "no name was sent"},
		"a port without names":          {private, nil, nil, "10.1.2.3:22", "", "", rulePrivate},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &Dialer{Policy: tt.policy, Resolver: world, Proxy: func(string) (*url.URL, error) { return tt.proxy, nil }}
			dialled := recording(t, d)
			var told []Denial
			e := &Egress{Dialer: d, Rules: tt.rules, Denials: &Denials{Tell: func(d Denial) { told = append(told, d) }}}
			client, inside := pair(t)
			_, err := io.WriteString(client, tt.sent)
			must.Do(t, errors.Join(err, client.CloseWrite()))
			to := netip.MustParseAddrPort(tt.to)
			conn, err := e.connect(t.Context(), inside, to)
			if conn != nil || err == nil || len(*dialled) > 0 {
				t.Errorf("got %v and error %v, and dialled %v, want nothing", conn, err, *dialled)
			}
			_ = inside.Close()
			if got, _ := io.ReadAll(client); !strings.HasPrefix(string(got), tt.want) || (len(got) > 0) != (tt.want != "") {
				t.Errorf("the client got %q, want %q", got, tt.want)
			}
			host := to.Addr().String()
			if tt.want != "" && tt.rules.DenyAll() {
				host = "other.test"
			}
			if diff := cmp.Diff([]Denial{{Host: host, Port: to.Port(), Rule: tt.denied}}, told); diff != "" {
				t.Errorf("denials (-want +got):\n%s", diff)
			}
		})
	}
}

// TestConnectOwnAddress checks that the destination of a connection is its local address.
func TestConnectOwnAddress(t *testing.T) {
	e := &Egress{Dialer: &Dialer{}, Denials: &Denials{}}
	_, inside := pair(t)
	_, err := e.Connect(t.Context(), inside)
	denied, ok := errors.AsType[*DeniedError](err)
	if !ok || denied.Rule != ruleLoopback || denied.Host != "127.0.0.1" {
		t.Errorf("got %v, want that loopback is denied", err)
	}
	failed := errors.New("it is wrong")
	e.Dialer.Proxy = func(string) (*url.URL, error) { return nil, &url.Error{Err: failed} }
	if conn, err := e.Connect(t.Context(), inside); conn != nil || err == nil || !strings.Contains(err.Error(), failed.Error()) {
		t.Errorf("got %v and error %v, want that of the machine's proxy", conn, err)
	}
}

// TestNameForMachineProxy checks that a proxy of the machine receives an address of the name that a
// client shows, also if the sandbox has no rules, or else the address.
func TestNameForMachineProxy(t *testing.T) {
	for sent, want := range map[string]string{"GET / HTTP/1.1\r\nHost: public.test\r\n\r\n": "CONNECT 203.0.113.5:80", "SSH-2.0-x\r\n": "CONNECT 203.0.113.9:80"} {
		proxy, asked := asking(t, http.StatusForbidden)
		d := &Dialer{Resolver: world, Proxy: func(string) (*url.URL, error) { return proxy, nil }}
		recording(t, d)
		e := &Egress{Dialer: d, Denials: &Denials{}}
		if err := from(t, e, "203.0.113.9:80", false, func(c net.Conn) { _, _ = io.WriteString(c, sent) }); err == nil {
			t.Errorf("%q: the proxy refuses, and there is no error", sent)
		}
		if diff := cmp.Diff([]string{want}, asked()); diff != "" {
			t.Errorf("%q (-want +got):\n%s", sent, diff)
		}
	}
}

// TestDoorIsForHTTPS checks which connections a door receives: those of https to hosts with rules.
// Without a door, no connection waits for a name.
func TestDoorIsForHTTPS(t *testing.T) {
	door := entrance{make(chan string, 10)}
	d := &Dialer{Resolver: world}
	dialled := recording(t, d)
	headers := withHeaders(t, nil, "public.test")
	limited := withRequests(t, map[string][]Request{"public.test": {{Path: "/"}}})
	for name, tt := range map[string]struct {
		rules *Rules
		door  Door
		port  uint16
		heard *said
		want  string // "door", an address, or the rule that denies it
	}{
		"https":                 {limited, door, 443, &said{}, "door"},
		"nothing was heard":     {limited, door, 443, nil, "203.0.113.5:443"},
		"http":                  {limited, door, 80, &said{}, ruleRequests},
		"without a door":        {limited, nil, 443, &said{}, ruleRequests},
		"no rules for requests": {headers, door, 443, nil, "203.0.113.5:443"},
	} {
		*dialled = nil
		e := &Egress{Dialer: d, Rules: tt.rules, Denials: &Denials{}, Door: tt.door}
		_, inside := pair(t)
		conn, err := e.pass(t.Context(), inside, "public.test", tt.port, tt.heard)
		got := "door"
		if denied, ok := errors.AsType[*DeniedError](err); ok {
			got = denied.Rule
		} else if len(*dialled) > 0 {
			got = (*dialled)[0]
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
		if conn != nil {
			_ = conn.Close()
		}
	}
	e := &Egress{Dialer: d, Rules: headers, Denials: &Denials{}}
	for _, connect := range []func() (net.Conn, error){
		func() (net.Conn, error) { return e.Dial(t.Context(), "public.test", 443) },
		func() (net.Conn, error) {
			return e.connect(t.Context(), nil, netip.MustParseAddrPort("203.0.113.5:443"))
		},
	} {
		conn, err := connect()
		must.Do(t, err)
		_ = conn.Close()
	}
	e.Door = door
	_, inside := pair(t)
	conn, err := e.connect(t.Context(), inside, netip.MustParseAddrPort("203.0.113.5:80")) // waits for no name
	must.Do(t, err)
	_ = conn.Close()
}

// TestUnshownAddresses checks the denials of a connection that does not show its name: each names the
// host, the address and the rule.
func TestUnshownAddresses(t *testing.T) {
	d := &Dialer{Resolver: world}
	recording(t, d)
	e := &Egress{Dialer: d, Rules: mustRules(t, true, "public.test rebound.test nosuch.test", allTraffic), Denials: &Denials{}}
	for host, want := range map[string]DeniedError{
		"public.test":  {Host: "public.test", Address: netip.MustParseAddr("203.0.113.5"), Rule: ruleUnshown},
		"rebound.test": {Host: "rebound.test", Address: netip.MustParseAddr("127.0.0.1"), Rule: ruleLoopback},
		"nosuch.test":  {Host: "nosuch.test", Rule: ruleUnshown},
	} {
		_, err := e.dialUnshown(t.Context(), host, 22)
		denied, ok := errors.AsType[*DeniedError](err)
		if !ok || (denied.Err != nil) != (host == "nosuch.test") {
			t.Errorf("%s: got %#v, want %#v", host, err, want)
			continue
		}
		got := *denied
		got.Err = nil
		if got != want {
			t.Errorf("%s: got %+v, want %+v", host, got, want)
		}
	}
	d.own = func() ([]netip.Addr, error) { return nil, io.ErrUnexpectedEOF }
	e.Asks, e.Rules = new(Asks), mustRules(t, true, "", "").AskingOtherwise()
	_, err := e.dialRestricted(t.Context(), true, "203.0.113.5", 80)
	must.Is(t, err, io.ErrUnexpectedEOF)
	calls := 0
	d.own = func() ([]netip.Addr, error) {
		if calls++; calls > 1 {
			return nil, io.ErrUnexpectedEOF
		}
		return nil, nil
	}
	_, err = e.needsAnswer("203.0.113.5")
	must.Is(t, err, io.ErrUnexpectedEOF)
}

// TestDeniedTexts checks the text of a denial.
func TestDeniedTexts(t *testing.T) {
	address := netip.MustParseAddr("192.0.2.1")
	for want, e := range map[string]*DeniedError{
		"network: a.test is not reachable from a sandbox: x":                  {Host: "a.test", Rule: "x"},
		"network: a.test (192.0.2.1) is not reachable from a sandbox: x":      {Host: "a.test", Rule: "x", Address: address},
		"network: a.test (192.0.2.1) is not reachable from a sandbox: x: EOF": {Host: "a.test", Rule: "x", Address: address, Err: io.EOF},
	} {
		if got := e.Error(); got != want || !errors.Is(e, e.Err) && e.Err != nil {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// answers is a resolver with the same answer to every question.
type answers []netip.Addr

func (a answers) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) { return a, nil }

// TestOddAnswersOfResolvers checks names without an address, names with another kind of address than was
// asked for, and the denial of a looked-up name.
func TestOddAnswersOfResolvers(t *testing.T) {
	v6, v4, loopback := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("203.0.113.5"), netip.MustParseAddr("127.0.0.1")
	for name, tt := range map[string]struct {
		resolver answers
		want     string
		denied   string
	}{
		"no address": {nil, "RCodeServerFailure", ""}, "only IPv6": {answers{v6}, "RCodeNameError", ""}, "both": {answers{v6, v4}, "203.0.113.5", ""},
		"IPv4 written as IPv6": {answers{netip.MustParseAddr("::ffff:203.0.113.5")}, "203.0.113.5", ""},
		"loopback":             {answers{loopback}, "RCodeNameError", ruleLoopback}, "one of them": {answers{loopback, v4}, "203.0.113.5", ""},
	} {
		var told []Denial
		d := &Dialer{Resolver: tt.resolver}
		recording(t, d)
		e := &Egress{Dialer: d, Denials: &Denials{Tell: func(d Denial) { told = append(told, d) }}}
		if got := ask(t, e, "a.test", dnsmessage.TypeA); len(got) != 1 || got[0] != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
		var want []Denial
		if tt.denied != "" {
			want = []Denial{{Host: "a.test", Rule: tt.denied}}
		}
		if diff := cmp.Diff(want, told); diff != "" {
			t.Errorf("%s: denials (-want +got):\n%s", name, diff)
		}
	}
	if conn, err := dial(t, &Dialer{Resolver: answers{}}, "a.test", 1); conn != nil || err == nil || !strings.Contains(err.Error(), "has no address") {
		t.Errorf("got %v and error %v, want that there is no address", conn, err)
	}
	d := &Dialer{connect: func(_ context.Context, nd *net.Dialer, _ string) (net.Conn, error) {
		return nil, nd.Control("tcp", "x", nil)
	}}
	if _, err := d.attempt(t.Context(), "a.test:1", func(netip.Addr) error { t.Error("checked"); return nil }); err == nil {
		t.Error("an address that cannot be read was allowed")
	}
}

// TestEgressProxyBesideMachineProxy checks a sandbox's proxy on a machine that has one of its own: it is
// checked as on any other, and receives no name that does not resolve here.
func TestEgressProxyBesideMachineProxy(t *testing.T) {
	e, dialled := proxied(t, mustRules(t, true, "nosuch.test", allTraffic), EgressProxy{Address: "rebound.test:1080"})
	e.Dialer.Proxy = func(string) (*url.URL, error) { return &url.URL{Scheme: "http", Host: elsewhere + ":1"}, nil }
	if _, ok := errors.AsType[*DeniedError](e.Dialer.CheckProxy(t.Context(), e.Rules)); !ok {
		t.Error("a proxy at loopback is allowed")
	}
	must.Do(t, e.Dialer.CheckProxy(t.Context(), mustRules(t, true, "", "")))
	conn, err := e.Reach(t.Context(), "nosuch.test", portHTTPS)
	if dns, ok := errors.AsType[*net.DNSError](err); conn != nil || !ok || !dns.IsNotFound || len(*dialled) > 0 {
		t.Errorf("got %v and error %v, and dialled %v, want that the name does not resolve", conn, err, *dialled)
	}
	e, _ = proxied(t, nil, EgressProxy{Address: "other.test:1080", Username: "u", Sealed: []byte("x")})
	e.Dialer.Unseal = func(*EgressProxy) (string, error) { return "", io.ErrUnexpectedEOF }
	conn, err = e.Reach(t.Context(), "public.test", portHTTPS)
	if must.Is(t, err, io.ErrUnexpectedEOF); conn != nil || !strings.Contains(err.Error(), "its password") {
		t.Errorf("got %v and error %v", conn, err)
	}
}

// TestProxyAnswersAfterTheEnd checks that no connection through a sandbox's HTTP proxy is used after its
// context has ended, because its deadline has passed.
func TestProxyAnswersAfterTheEnd(t *testing.T) {
	ctx, end := context.WithCancelCause(t.Context())
	late := errors.New("too late")
	near, far := net.Pipe()
	defer near.Close()
	go func() {
		_, _ = http.ReadRequest(bufio.NewReader(far))
		end(late)
		_, _ = io.WriteString(far, "HTTP/1.1 200 OK\r\n\r\n")
		_ = far.Close()
	}()
	must.Is(t, (&egressProxy{http: true}).ask(ctx, noDeadline{near}, "a.test:1", ""), late)
}

// TestNothingWaitsForACall checks that a call that bounds its time leaves nothing that waits for the end of
// its context.
func TestNothingWaitsForACall(t *testing.T) {
	e, _ := proxied(t, nil, EgressProxy{Address: "nosuch.test:1080"})
	d := e.Dialer
	named := &Egress{Dialer: d, Rules: mustRules(t, true, "public.test", allTraffic), Denials: &Denials{}}
	proxy, _ := asking(t, http.StatusForbidden)
	for name, call := range map[string]func(context.Context) error{
		"a check":   func(ctx context.Context) error { return d.CheckProxy(ctx, e.Rules) },
		"a dial":    func(ctx context.Context) error { return second(d.dial(ctx, nil, false, "nosuch.test", 1)) },
		"an answer": func(ctx context.Context) error { return second(named.dialUnshown(ctx, "public.test", 22)) },
		"a proxy": func(ctx context.Context) error {
			return second(d.addressThroughProxy(ctx, proxy, netip.MustParseAddrPort("203.0.113.5:1"), time.Minute))
		},
	} {
		ctx := &awaited{Context: t.Context()}
		if err := call(ctx); err == nil || ctx.by.Load() != 0 {
			t.Errorf("%s: got error %v, and %d wait for the context, want none", name, err, ctx.by.Load())
		}
	}
}

// TestClosedAndPartial checks which rules allow nothing, and which do more than allow or deny everything.
func TestClosedAndPartial(t *testing.T) {
	off := mustRules(t, false, "", "")
	asking, err := off.WithAsking()
	must.Do(t, err)
	requests, err := off.WithRequests(map[string][]Request{"a.test": {{}}})
	must.Do(t, err)
	proxied, err := (*Rules)(nil).WithProxy(&EgressProxy{Address: "a.test:1"})
	must.Do(t, err)
	for name, tt := range map[string]struct {
		rules           *Rules
		closed, partial bool
	}{
		"none": {nil, false, false}, "off": {off, true, false}, "asking": {asking, false, true}, "requests": {requests, false, true}, "a proxy": {proxied, false, true},
		"asking alone": {&Rules{asks: true}, false, true},
	} {
		if tt.rules.closed() != tt.closed || tt.rules.Partial() != tt.partial {
			t.Errorf("%s: closed %v, partial %v", name, tt.rules.closed(), tt.rules.Partial())
		}
		for _, listed := range []bool{false, true} {
			if got := (&Egress{Rules: tt.rules, Listed: listed}).Closed(); got != (tt.closed && !listed) {
				t.Errorf("%s, listed %v: closed %v", name, listed, got)
			}
		}
	}
	if same, err := off.WithRequests(nil); err != nil || same != off {
		t.Errorf("without requests: got other rules and error %v", err)
	}
	if (*Rules)(nil).Secrets() != nil || len(off.Secrets()) != 0 || (*Rules)(nil).named("a.test") {
		t.Error("rules without secrets or names have some")
	}
	if names := (&Egress{}).ServiceNames(t.Context()); names != nil {
		t.Errorf("without services: got %v", names)
	}
}

// TestRuleEntries checks entries that are no rule, by list, and names at the bounds of their characters.
func TestRuleEntries(t *testing.T) {
	for _, tt := range []struct{ list, allow, deny, want string }{
		{"denyOut", "", "a.test", "want an address or a network"},
		{"denyOut", "", "::ffff:10.0.0.0/104", "want an address or a network"},
		{"denyOut", "", "0.0.0.0", "want an address or a network"},
		{"denyOut", "", "::", "want an address or a network"},
		{"denyOut", "", "fe80::1%eth0", "want an address or a network"},
		{"allowOut", "a.test", "10.0.0.0/8", "deny all traffic first"},
		{"allowOut", "a{.test", allTraffic, "want an address, a network"},
		{"allowOut", "a`.test", allTraffic, "want an address, a network"},
		{"allowOut", "a/.test", allTraffic, "want an address, a network"},
		{"allowOut", "fe80::1%eth0", allTraffic, "want an address, a network"},
	} {
		_, err := ParseRules(true, strings.Fields(tt.allow), strings.Fields(tt.deny))
		rule, ok := errors.AsType[*RuleError](err)
		if !ok || rule.List != tt.list || !strings.Contains(rule.Reason, tt.want) || !slices.Contains([]string{tt.allow, tt.deny}, rule.Entry) {
			t.Errorf("%+v: got %v", tt, err)
		}
	}
	mapped := mustRules(t, true, "::ffff:192.0.2.1", allTraffic)
	for text, want := range map[string]bool{"192.0.2.1": true, "192.0.2.2": false} {
		if got := mapped.allows(netip.MustParseAddr(text)); got != want {
			t.Errorf("::ffff:192.0.2.1 allows %s: %v, want %v", text, got, want)
		}
	}
	r := mustRules(t, true, "09az-_.test *.wild.test", allTraffic)
	for name, want := range map[string]bool{"09az-_.test": true, "a.wild.test": true, ".wild.test": false, "wild.test": false} {
		if r.named(name) != want {
			t.Errorf("%s: want it allowed: %v", name, want)
		}
	}
	peer := func(n int) string {
		return "8080-" + strings.Repeat("a", 50) + "." + strings.Repeat("b", n-66) + ".test:4000"
	}
	for n, want := range map[int]bool{128: true, 129: false} {
		entry := peer(n)
		if _, err := (*Rules)(nil).WithHeaders(map[string]map[string]string{entry: {"A": "b"}}); (err == nil) != want || len(entry) != n {
			t.Errorf("a host of %d bytes: got %v, want it allowed: %v", len(entry), err, want)
		}
	}
	if _, err := NewServices([]Service{{"12", "127.0.0.1:1"}}, 2); err == nil {
		t.Error("a number is the name of a service")
	}
}

// TestOddPaths checks a path of the longest length, and targets that are no path.
func TestOddPaths(t *testing.T) {
	for n, want := range map[int]bool{maxSentPath: true, maxSentPath + 1: false} {
		if _, why := readPath(&url.URL{Path: "/" + strings.Repeat("a", n-1)}); (why == "") != want {
			t.Errorf("%d bytes: got %q, want it allowed: %v", n, why, want)
		}
	}
	for _, u := range []url.URL{{Opaque: "//a.test/simple", Path: "/simple"}, {Path: "simple"}, {}} {
		if readings, why := readPath(&u); why == "" || readings != nil {
			t.Errorf("%+v: got %q and %q, want a refusal", u, readings, why)
		}
	}
	for path, want := range map[string]string{"/a/.": "/a/", "/a/b/..": "/a/", "/a": "/a", "/": "/", "/..": "/", "/a.": "/a."} {
		if got := cleaned(path); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
	relay := &Relay{}
	near, far := pair(t)
	done := make(chan struct{})
	go func() { defer close(done); relay.relay(t.Context(), far) }() // a client that never shows a name
	must.Do(t, near.CloseWrite())
	patience.Receive(t, "the end of the relay", done)
	p := NewProxy(func(context.Context, string, uint16) (net.Conn, error) { return nil, fmt.Errorf("dialled") })
	w := &recorded{header: http.Header{}}
	p.ServeHTTP(w, &http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "http", Path: "/"}})
	if w.status != http.StatusBadRequest {
		t.Errorf("a request for no host: got %d, want 400", w.status)
	}
}

// recorded is an answer whose status is recorded.
type recorded struct {
	header http.Header
	status int
}

func (r *recorded) Header() http.Header         { return r.header }
func (r *recorded) WriteHeader(status int)      { r.status = status }
func (r *recorded) Write(p []byte) (int, error) { return len(p), nil }
