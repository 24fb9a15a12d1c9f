package network

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/e2bctl/e2bctl/internal/must"
)

// telling returns denials, and a function that returns those that were told.
func telling() (*Denials, func() []Denial) {
	var told []Denial
	return &Denials{Tell: func(d Denial) { told = append(told, d) }}, func() []Denial { return told }
}

// TestDenialsSayEverything checks each field of the error of a denied connection, and of the denial that is
// told about it. The host of both is the host as requested.
func TestDenialsSayEverything(t *testing.T) {
	loopback := netip.MustParseAddr("127.0.0.1")
	closed := mustRules(t, true, "public.test rebound.test nosuch.test intranet", allTraffic)
	limited := withRequests(t, map[string][]Request{"public.test": {{}}})
	asking := mustRules(t, true, "", "").AskingOtherwise()
	services, err := NewServices([]Service{{"db", "127.0.0.1:5432"}}, 4000)
	must.Do(t, err)
	at := func(host string) func(string) (*url.URL, error) {
		return func(string) (*url.URL, error) { return &url.URL{Scheme: "http", Host: host + ":1"}, nil }
	}
	through, err := closed.WithProxy(&EgressProxy{Address: "other.test:1080"})
	must.Do(t, err)
	for _, tt := range []struct {
		name    string
		dialer  Dialer
		rules   *Rules
		port    uint16
		want    DeniedError // without Err
		unknown bool        // the name does not resolve, and Err says so
	}{
		{"a number", Dialer{}, nil, 80, DeniedError{Host: "127.1", Rule: ruleNumeric}, false},
		{"no https", Dialer{}, limited, 80, DeniedError{Host: "Public.test", Rule: ruleRequests}, false},
		{"a denied name", Dialer{}, closed, 443, DeniedError{Host: "Other.test", Rule: ruleDenied}, false},
		{"offline", Dialer{}, mustRules(t, false, "", ""), 22, DeniedError{Host: "public.test", Rule: ruleOff}, false},
		{"an address of a name", Dialer{}, nil, 22, DeniedError{Host: "rebound.test", Address: loopback, Rule: ruleLoopback}, false},
		{"an unshown name", Dialer{}, closed, 22, DeniedError{Host: "public.test", Address: netip.MustParseAddr("203.0.113.5"), Rule: ruleUnshown}, false},
		{"an unknown name", Dialer{}, closed, 22, DeniedError{Host: "nosuch.test", Rule: ruleUnshown}, true},
		{"a forgotten address", Dialer{}, asking, 22, DeniedError{Host: "198.18.0.9", Rule: ruleForgotten}, false},
		{"a refused name", Dialer{}, asking, 22, DeniedError{Host: "Public.test", Rule: ruleRefused}, false},
		{"another port of a service", Dialer{}, nil, 80, DeniedError{Host: "db.host.internal", Rule: "this service of the machine is at port 5432 only"}, false},
		{"a local name", Dialer{Proxy: at(elsewhere), ProxyNames: true}, nil, 22, DeniedError{Host: "intranet", Rule: ruleLocalName}, true},
		{"an unchecked name", Dialer{Proxy: at(elsewhere), Policy: Policy{DenyPrivate: true}}, nil, 22, DeniedError{Host: "nosuch.test", Rule: ruleUnchecked}, true},
		{"a proxy on this machine", Dialer{Proxy: at("127.0.0.1")}, nil, 22, DeniedError{Host: "nosuch.test", Rule: ruleProxyHere}, true},
		{"an address of a name, for a proxy of its own", Dialer{}, through, 443, DeniedError{Host: "rebound.test", Address: loopback, Rule: ruleLoopback}, false},
	} {
		d := tt.dialer
		d.Resolver = resolverFunc(func(host string) []string { return world[normalize(host)] })
		dialled := recording(t, &d)
		denials, told := telling()
		e := &Egress{Dialer: &d, Rules: tt.rules, Denials: denials, Services: services, Asks: new(Asks), Ask: func(context.Context, Target) bool { return false }}
		conn, err := e.Dial(t.Context(), tt.want.Host, tt.port)
		denied, ok := errors.AsType[*DeniedError](err)
		if conn != nil || !ok || len(*dialled) > 0 {
			t.Errorf("%s: got %v and error %v, and dialled %q, want a denial", tt.name, conn, err, *dialled)
			continue
		}
		dns, unknown := errors.AsType[*net.DNSError](denied.Err)
		if unknown != tt.unknown || unknown && !dns.IsNotFound {
			t.Errorf("%s: got the error %v of the resolver, want one: %v", tt.name, denied.Err, tt.unknown)
		}
		got := *denied
		if got.Err = nil; got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
		if diff := cmp.Diff([]Denial{{tt.want.Host, tt.port, tt.want.Rule}}, told()); diff != "" {
			t.Errorf("%s: told (-want +got):\n%s", tt.name, diff)
		}
	}
}

// TestDeniedQuestionsSayEverything checks each field of the denial of a DNS question. Names that are not
// valid are neither looked up nor denied.
func TestDeniedQuestionsSayEverything(t *testing.T) {
	services, err := NewServices([]Service{{"db", "127.0.0.1:5432"}}, 4000)
	must.Do(t, err)
	closed, off := mustRules(t, true, "a.test", allTraffic), mustRules(t, false, "", "")
	for _, tt := range []struct {
		name  string
		rules *Rules
		want  string // rule that denies it; "": no denial
	}{
		{"other.test", closed, ruleDenied}, {"other.test", off, ruleOff}, {"db.host.internal", closed, ruleDenied}, {"db.host.internal", off, ruleOff},
		{peerName, closed, ruleDenied}, {peerName, off, ruleOff}, {"rebound.test", nil, ruleLoopback}, {"bad name.test", nil, ""}, {"127.1", nil, ""}, {"bad name.test", mustRules(t, true, "*", allTraffic), ""},
	} {
		denials, told := telling()
		e := peering(tt.rules)
		e.Services, e.Denials = services, denials
		e.Dialer.Resolver = resolverFunc(func(host string) []string {
			if host != "rebound.test" {
				t.Errorf("looked up %q", host)
			}
			return world[host]
		})
		if got := ask(t, e, tt.name, dnsmessage.TypeA); len(got) != 1 || got[0] != "RCodeNameError" {
			t.Errorf("%s: got %q, want that there is no such name", tt.name, got)
		}
		var want []Denial
		if tt.want != "" {
			want = []Denial{{Host: tt.name, Rule: tt.want}}
		}
		if diff := cmp.Diff(want, told()); diff != "" {
			t.Errorf("%s: told (-want +got):\n%s", tt.name, diff)
		}
	}
}

// TestOneListOfAddresses checks that the addresses of this machine, whose list takes long, are listed once
// for a connection without rules, and that the connection leads to its own destination.
func TestOneListOfAddresses(t *testing.T) {
	for rules, want := range map[*Rules]int{nil: 1, mustRules(t, true, "", "10.0.0.0/8"): 2} {
		d := &Dialer{}
		dialled := recording(t, d)
		list, lists := d.own, 0
		d.own = func() ([]netip.Addr, error) { lists++; return list() }
		e := &Egress{Dialer: d, Rules: rules, Denials: &Denials{}}
		conn, err := e.connect(t.Context(), nil, netip.MustParseAddrPort("203.0.113.9:443"))
		must.Do(t, err)
		_ = conn.Close()
		if lists != want || strings.Join(*dialled, " ") != "203.0.113.9:443" {
			t.Errorf("restricted %v: got %d lists and dialled %q, want %d and the destination", rules.restrict(), lists, *dialled, want)
		}
	}
}

// TestShownNamesDecide checks to where a connection to an address leads that a name allows: by https to the
// door if there are headers for the shown name, and else to the name. A name that is the address itself is
// asked about as the address.
func TestShownNamesDecide(t *testing.T) {
	const address = "203.0.113.5"
	door := entrance{make(chan string, 10)}
	get := "GET / HTTP/1.1\r\nHost: public.test\r\n\r\n"
	asAddress := strings.Replace(hello(t, "203a0a113a5"), "203a0a113a5", address, 1)
	for _, tt := range []struct {
		name, sent string
		port       uint16
		asked      string
		dialled    string // "": the door
	}{
		{"https", hello(t, "public.test"), 443, "", ""},
		{"http", get, 80, "public.test:80", "203.0.113.5:80"},
		{"https of another host", hello(t, "other.test"), 443, "other.test:443", "198.51.100.7:443"},
		{"https of an address", asAddress, 443, address + ":443", address + ":443"},
		{"no http", "SSH-2.0-x\r\n", 80, address + ":80", address + ":80"},
	} {
		d := &Dialer{Resolver: world}
		dialled := recording(t, d)
		connect := d.connect
		connectBy(t, d, func(ctx context.Context, nd *net.Dialer, address string) (net.Conn, error) {
			conn, err := connect(ctx, nd, address)
			if err != nil {
				return nil, err
			}
			near, far := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, far); _ = far.Close() }()
			return near, conn.Close()
		})
		var asked []string
		e := &Egress{Dialer: d, Rules: withHeaders(t, mustRules(t, true, "", "").AskingOtherwise(), "public.test"), Denials: &Denials{}, Door: door, Asks: new(Asks)}
		e.Ask = func(_ context.Context, to Target) bool { asked = append(asked, to.String()); return true }
		client, inside := pair(t)
		_, err := client.Write([]byte(tt.sent))
		must.Do(t, errors.Join(err, client.CloseWrite()))
		conn, err := e.admit(t.Context(), inside, address, tt.port, nil)
		must.Do(t, err)
		if got := strings.Join(*dialled, " "); got != tt.dialled || strings.Join(asked, " ") != tt.asked {
			t.Errorf("%s: dialled %q, and asked about %q, want %q and %q", tt.name, got, asked, tt.dialled, tt.asked)
		}
		_ = conn.Close() // a gate that still serves may dial again
	}
}
