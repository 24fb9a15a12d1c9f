package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/e2bctl/e2bctl/internal/must"
)

// served returns the address of a listener that sends text on each connection.
func served(t *testing.T, network, address, text string) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), network, address)
	must.Do(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, text)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

// reachesServices is an egress path to services of this machine. used records the reported connections.
type reachesServices struct {
	*Egress

	used []string
}

// inside returns the address of the service with a name below host.internal.
func (e *reachesServices) inside(name string) string {
	return e.Services.named(name + serviceDomain).inside.String()
}

// toServices returns an egress path with these rules to the services tcp, unix at port 7000, and gone.
func toServices(t *testing.T, rules *Rules) (e *reachesServices, port uint16) {
	t.Helper()
	at := served(t, "tcp", "127.0.0.1:0", "tcp")
	socket := served(t, "unix", filepath.Join(t.TempDir(), "s"), "unix")
	services, err := NewServices([]Service{{"tcp", at}, {"Unix:7000", "unix:" + socket}, {"gone:9", "unix:" + socket + ".gone"}}, 1)
	must.Do(t, err)
	e = &reachesServices{Egress: &Egress{Dialer: &Dialer{Resolver: world, Policy: Policy{DenyPrivate: true, NeverPrivate: true}}, Rules: rules, Denials: &Denials{}, Services: services}}
	e.Used = func(u Use) { e.used = append(e.used, fmt.Sprintf("%s %v", u.Target, u.Err == nil)) }
	return e, netip.MustParseAddrPort(at).Port()
}

// reached returns the text of a service, or the rule that denies it.
func (e *reachesServices) reached(ctx context.Context, host string, port uint16) string {
	conn, err := e.Dial(ctx, host, port)
	if denied, ok := errors.AsType[*DeniedError](err); ok {
		return denied.Rule
	}
	if err != nil {
		return "failed"
	}
	defer conn.Close()
	text, err := io.ReadAll(conn)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// TestServiceRules checks that a sandbox reaches a service of this machine by its name and port if
// its rules about names allow it. Rules about addresses and about private networks do not apply.
func TestServiceRules(t *testing.T) {
	t.Parallel()
	const all = "0.0.0.0/0"
	tests := []struct {
		offline     bool
		allow, deny string
		want        string // rule that denies the name; "": none
	}{
		{},
		{deny: "127.0.0.0/8 192.0.2.0/24"},
		{offline: true, want: ruleOff},
		{offline: true, allow: "127.0.0.1 192.0.2.0/24", want: ruleOff},
		{deny: all, want: ruleDenied},
		{deny: all, allow: "*.host.internal"},
		{deny: all, allow: "tcp.host.internal unix.host.internal gone.host.internal"},
		{deny: all, allow: "other.host.internal", want: ruleDenied},
	}
	for _, test := range tests {
		e, port := toServices(t, mustRules(t, !test.offline, test.allow, test.deny))
		text := func(text string) string {
			if test.want != "" {
				return test.want
			}
			return text
		}
		got := []string{
			e.reached(t.Context(), "TCP.host.internal.", port), e.reached(t.Context(), e.inside("tcp"), port),
			e.reached(t.Context(), "unix.host.internal", 7000), e.reached(t.Context(), "gone.host.internal", 9),
		}
		if diff := cmp.Diff([]string{text("tcp"), text("tcp"), text("unix"), text("failed")}, got); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", test, diff)
		}
		tcp := fmt.Sprintf("tcp.host.internal:%d true", port)
		used, name := []string{tcp, tcp, "unix.host.internal:7000 true", "gone.host.internal:9 false"}, e.inside("tcp")
		if test.want != "" {
			used, name = nil, "RCodeNameError"
		}
		if diff := cmp.Diff(used, e.used); diff != "" {
			t.Errorf("%+v, reported (-want +got):\n%s", test, diff)
		}
		if got := ask(t, e.Egress, "tcp.host.internal", dnsmessage.TypeA); len(got) != 1 || got[0] != name {
			t.Errorf("%+v: the name has the addresses %q, want %s", test, got, name)
		}
		if got, listed := e.ServiceNames(t.Context())["tcp.host.internal"]; listed != (test.want == "") || listed && got.String() != name {
			t.Errorf("%+v: the list of names has the address %s, want that of DNS, %s", test, got, name)
		}
	}
}

// TestServiceAlone checks that a service makes no other port and no other name reachable, and that
// every attempt is a denial.
func TestServiceAlone(t *testing.T) {
	t.Parallel()
	e, port := toServices(t, nil)
	for host, want := range map[string]string{
		"tcp.host.internal": "port " + fmt.Sprint(port) + " only", e.inside("tcp"): "port " + fmt.Sprint(port) + " only", e.inside("unix"): "port 7000 only", "127.0.0.1": ruleLoopback,
	} {
		if got := e.reached(t.Context(), host, 22); !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", host, got, want)
		}
	}
	if got := e.Denials.Count(); got != 4 || e.used != nil {
		t.Errorf("got %d denials and connections %q, want 4 and none", got, e.used)
	}
	for _, name := range []string{"other.host.internal", "x.tcp.host.internal", "host.internal", "tcp"} {
		if got := e.reached(t.Context(), name, port); got != "failed" {
			t.Errorf("%s: got %q, want no such name", name, got)
		}
	}
	if got := ask(t, e.Egress, "tcp.host.internal", dnsmessage.TypeAAAA); len(got) != 0 {
		t.Errorf("got the IPv6 addresses %q, want none", got)
	}
}

// TestServiceQuestion checks that the rules of a sandbox that require a question require it for a
// service, too.
func TestServiceQuestion(t *testing.T) {
	t.Parallel()
	var none *Rules
	e, port := toServices(t, none.AskingOtherwise())
	var asked []string
	e.Asks = &Asks{}
	e.Ask = func(_ context.Context, to Target) bool {
		asked = append(asked, to.Host)
		return to.Host == "tcp.host.internal"
	}
	if got := ask(t, e.Egress, "unix.host.internal", dnsmessage.TypeA); len(got) != 1 || got[0] != e.inside("unix") {
		t.Errorf("the name has the addresses %q, want %s", got, e.inside("unix"))
	}
	if got := len(e.ServiceNames(t.Context())); got != 3 || len(asked) != 0 {
		t.Errorf("the list has %d names after questions about %q, want 3 and none", got, asked)
	}
	got := []string{e.reached(t.Context(), e.inside("tcp"), port), e.reached(t.Context(), e.inside("unix"), 7000)}
	if diff := cmp.Diff([]string{"tcp", ruleRefused}, got); diff != "" {
		t.Errorf("reached (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"tcp.host.internal", "unix.host.internal"}, asked); diff != "" {
		t.Errorf("asked about (-want +got):\n%s", diff)
	}
}

// TestServiceMoves checks the addresses of a service that is a host name when a sandbox connects.
// The name may lead to a private network, but neither to a metadata service nor to the cloud.
func TestServiceMoves(t *testing.T) {
	t.Parallel()
	services, err := NewServices([]Service{{"db", "db.test:5432"}, {"self", "self.test:4000"}}, 4000)
	must.Do(t, err)
	lead := ""
	d := &Dialer{
		own: func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("198.51.100.10")}, nil },
		connect: func(_ context.Context, nd *net.Dialer, _ string) (net.Conn, error) {
			near, far := net.Pipe()
			_ = far.Close()
			return near, nd.Control("tcp", lead, nil)
		},
	}
	for at, want := range map[string]string{
		"10.1.2.3:5432": "", "127.0.0.1:5432": "", "[::1]:5432": "", "198.51.100.10:5432": "", "203.0.113.5:4000": "",
		"169.254.169.254:5432": ruleMetadata, "169.254.1.1:5432": ruleLinkLocal, "0.0.0.0:5432": ruleServiceAny, "224.0.0.1:5432": ruleMulticast,
		"127.0.0.1:4000": ruleServiceSelf, "198.51.100.10:4000": ruleServiceSelf, "[::ffff:127.0.0.1]:4000": ruleServiceSelf, "[64:ff9b::a9fe:a9fe]:5432": ruleMetadata,
	} {
		lead = at
		e := &reachesServices{Egress: &Egress{Dialer: d, Denials: &Denials{}, Services: services}}
		host, port := "db.host.internal", uint16(5432)
		if strings.HasSuffix(at, ":4000") {
			host, port = "self.host.internal", 4000
		}
		if got := e.reached(t.Context(), host, port); got != want {
			t.Errorf("%s: got %q, want %q", at, got, want)
		}
	}
}

// TestNewServices checks which services are refused at the start.
func TestNewServices(t *testing.T) {
	t.Parallel()
	const cloud = 4000
	for _, one := range []Service{
		{"db", "127.0.0.1:5432"}, {"d-b_1:1", "[::1]:5432"}, {"db:65535", "localhost:1"}, {"db", "10.0.0.1:4000"}, {"db", "db.example:5432"}, {"db:5432", "unix:/run/db.sock"},
	} {
		if _, err := NewServices([]Service{one}, cloud); err != nil {
			t.Errorf("%v: %v", one, err)
		}
	}
	for _, test := range []struct {
		Service
		want string
	}{
		{Service{"", "127.0.0.1:5432"}, "one label"},
		{Service{"a.b", "127.0.0.1:5432"}, "one label"},
		{Service{"*", "127.0.0.1:5432"}, "one label"},
		{Service{strings.Repeat("a", 64), "127.0.0.1:5432"}, "one label"},
		{Service{"db:0", "127.0.0.1:5432"}, "NAME:PORT"},
		{Service{"db:65536", "127.0.0.1:5432"}, "NAME:PORT"},
		{Service{"db", "5432"}, "host:port"},
		{Service{"db", "127.0.0.1:0"}, "host:port"},
		{Service{"db", ":5432"}, "host:port"},
		{Service{"db", "http://127.0.0.1:5432"}, "host:port"},
		{Service{"db", "127.1:5432"}, "neither an address nor"},
		{Service{"db", "unix:/run/db.sock"}, "a socket has no port"},
		{Service{"db:5432", "unix:run/db.sock"}, "absolute"},
		{Service{"db", "169.254.169.254:80"}, ruleMetadata},
		{Service{"db", "[fe80::1]:80"}, ruleLinkLocal},
		{Service{"db", "0.0.0.0:80"}, ruleServiceAny},
		{Service{"db", "[::]:80"}, ruleServiceAny},
		{Service{"db:1", "127.0.0.1:4000"}, ruleServiceSelf},
		{Service{"db:1", "LOCALHOST:4000"}, ruleServiceSelf},
		{Service{"db:1", "127.8.8.8:4000"}, ruleServiceSelf},
	} {
		if _, err := NewServices([]Service{test.Service}, cloud); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: got error %v, want %q", test.Service, err, test.want)
		}
	}
	if _, err := NewServices([]Service{{"db", "127.0.0.1:1"}, {"DB:2", "127.0.0.1:2"}}, cloud); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("a name that is given twice: got error %v", err)
	}
	many := make([]Service, maxServices+1)
	for i := range many {
		many[i] = Service{fmt.Sprint("s", i), "127.0.0.1:1"}
	}
	all, err := NewServices(many[:maxServices], cloud)
	must.Do(t, err)
	slices.Reverse(many)
	other, err := NewServices(many[1:], cloud)
	must.Do(t, err)
	for n := range uint32(maxServices) {
		a, b := all.at(nthService(n)), other.at(nthService(n))
		if a == nil || b == nil || a.name != b.name {
			t.Errorf("the services at %s are %v and, in another order, %v", nthService(n), a, b)
		}
	}
	if _, err := NewServices(many, cloud); err == nil {
		t.Error("more services than addresses were accepted")
	}
}
