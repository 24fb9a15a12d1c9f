package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/internal/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// names is a resolver that knows only these names.
type names map[string][]string

func (n names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	var addresses []netip.Addr
	for _, a := range n[host] {
		addresses = append(addresses, netip.MustParseAddr(a))
	}
	if addresses == nil {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return addresses, nil
}

// elsewhere is the address of a proxy on another machine, for recording.
const elsewhere = "192.0.2.99"

// recording makes d connect to proxies only. It records each address that would be dialled, after
// it has called the control hook, as a real dial does. Every loopback address that may be dialled
// counts as a proxy, and also stands for a proxy on another machine.
func recording(t testing.TB, d *Dialer) *[]string {
	t.Helper()
	var dialled []string
	d.own = func() ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10")}, nil
	}
	connectBy(t, d, func(ctx context.Context, nd *net.Dialer, address string) (net.Conn, error) {
		if err := nd.Control("tcp", address, nil); err != nil {
			return nil, err
		}
		if host, port, err := net.SplitHostPort(address); err != nil || host == "127.0.0.1" || host == elsewhere {
			return (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
		}
		dialled = append(dialled, address)
		near, far := net.Pipe()
		_ = far.Close()
		return near, nil
	})
	return &dialled
}

// dial connects as the egress path of a sandbox without rules.
func dial(t *testing.T, d *Dialer, host string, port uint16) (net.Conn, error) {
	t.Helper()
	return (&Egress{Dialer: d, Denials: &Denials{}}).Dial(t.Context(), host, port)
}

// addressed maps names to their addresses. Only some addresses may be reached.
var addressed = names{
	"public.test":      {"203.0.113.5"},
	"rebound.test":     {"127.0.0.1"},
	"mixed.test":       {"127.0.0.1", "203.0.113.6"},
	"mapped.test":      {"::ffff:127.0.0.1"},
	"mappedpublic.org": {"::ffff:203.0.113.7"},
	"both.test":        {"2001:db8::5", "203.0.113.8"},
	"metadata.test":    {"169.254.169.254"},
	"own.test":         {"192.0.2.10"},
	"many.test":        strings.Split(strings.Repeat("127.0.0.1 ", 9)+"203.0.113.9", " "),
}

func TestDials(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		host    string
		policy  Policy
		dialled string
	}{
		{host: "public.test", dialled: "203.0.113.5:443"},
		{host: "203.0.113.5", dialled: "203.0.113.5:443"},
		{host: "mappedpublic.org", dialled: "203.0.113.7:443"},
		{host: "mixed.test", dialled: "203.0.113.6:443"},
		{host: "both.test", dialled: "203.0.113.8:443"},
		{host: "2001:db8::5", dialled: "[2001:db8::5]:443"},
		{host: "10.1.2.3", dialled: "10.1.2.3:443"},
		{host: "public.test", policy: Policy{DenyPrivate: true}, dialled: "203.0.113.5:443"},
	} {
		t.Run(fmt.Sprintf("%s %+v", tt.host, tt.policy), func(t *testing.T) {
			t.Parallel()
			d := &Dialer{Policy: tt.policy, Resolver: addressed}
			dialled := recording(t, d)
			conn, err := (&Egress{Dialer: d, Denials: &Denials{}}).Dial(t.Context(), tt.host, 443)
			must.Do(t, err)
			_ = conn.Close()
			if diff := cmp.Diff([]string{tt.dialled}, *dialled); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDenials(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		host   string
		policy Policy
		rule   string
	}{
		{host: "many.test", rule: ruleLoopback},
		{host: "rebound.test", rule: ruleLoopback},
		{host: "mapped.test", rule: ruleLoopback},
		{host: "metadata.test", rule: ruleMetadata},
		{host: "own.test", rule: ruleOwn},
		{host: "127.0.0.1", rule: ruleLoopback},
		{host: "127.255.255.254", rule: ruleLoopback},
		{host: "::1", rule: ruleLoopback},
		{host: "::ffff:127.0.0.1", rule: ruleLoopback},
		{host: "::127.0.0.1", rule: ruleLoopback},
		{host: "64:ff9b::7f00:1", rule: ruleLoopback},
		{host: "64:ff9b::a9fe:a9fe", rule: ruleMetadata},
		{host: "64:ff9b:1::7f00:1", rule: ruleLoopback},
		{host: "64:ff9b:1::a9fe:a9fe", rule: ruleMetadata},
		{host: "::ffff:0:127.0.0.1", rule: ruleLoopback},
		{host: "::ffff:0:192.0.2.10", rule: ruleOwn},
		{host: "fd00:42::42", rule: ruleMetadata},
		{host: "2002:7f00:1::", rule: ruleLoopback},
		{host: "2002:c000:20a::1", rule: ruleOwn},
		{host: "0.0.0.0", rule: ruleUnspec},
		{host: "0.1.2.3", rule: ruleUnspec},
		{host: "::", rule: ruleUnspec},
		{host: "::ffff:0.0.0.0", rule: ruleUnspec},
		{host: "169.254.1.1", rule: ruleLinkLocal},
		{host: "fe80::1", rule: ruleLinkLocal},
		{host: "fe80::1%eth0", rule: ruleZone},
		{host: "169.254.169.254", rule: ruleMetadata},
		{host: "::ffff:169.254.169.254", rule: ruleMetadata},
		{host: "fd00:ec2::254", rule: ruleMetadata},
		{host: "100.100.100.200", rule: ruleMetadata},
		{host: "168.63.129.16", rule: ruleMetadata},
		{host: "224.0.0.1", rule: ruleMulticast},
		{host: "ff02::1", rule: ruleMulticast},
		{host: "255.255.255.255", rule: ruleMulticast},
		{host: "192.0.2.10", rule: ruleOwn},
		{host: "::ffff:192.0.2.10", rule: ruleOwn},
		{host: "2001:db8::10", rule: ruleOwn},
		{host: "10.1.2.3", policy: Policy{DenyPrivate: true}, rule: rulePrivate},
		{host: "172.16.0.1", policy: Policy{DenyPrivate: true}, rule: rulePrivate},
		{host: "100.64.0.1", policy: Policy{DenyPrivate: true}, rule: rulePrivate},
		{host: "fd12::1", policy: Policy{DenyPrivate: true}, rule: rulePrivate},
		{host: "198.18.0.1", policy: Policy{DenyPrivate: true}, rule: rulePrivate},
		{host: "240.0.0.1", policy: Policy{DenyPrivate: true}, rule: rulePrivate},
		{host: "fec0::1", policy: Policy{DenyPrivate: true}, rule: rulePrivate},
		{host: "64:ff9b:1:2::1", policy: Policy{DenyPrivate: true}, rule: rulePrivate},
		{host: "64:ff9b::10.0.0.1", policy: Policy{DenyPrivate: true}, rule: rulePrivate},
		{host: "::ffff:192.168.0.1", policy: Policy{DenyPrivate: true}, rule: rulePrivate},
	} {
		t.Run(fmt.Sprintf("%s %+v", tt.host, tt.policy), func(t *testing.T) {
			t.Parallel()
			d := &Dialer{Policy: tt.policy, Resolver: addressed}
			dialled := recording(t, d)
			var denials Denials
			_, err := (&Egress{Dialer: d, Denials: &denials}).Dial(t.Context(), tt.host, 443)
			denied, ok := errors.AsType[*DeniedError](err)
			if !ok || denied.Rule != tt.rule || denied.Host != tt.host {
				t.Fatalf("got %v, want a denial of %q by %q", err, tt.host, tt.rule)
			}
			if !strings.Contains(err.Error(), tt.host) || !denied.Denied() {
				t.Errorf("got %v, want an error that names %q and is a denial", err, tt.host)
			}
			if denials.Count() != 1 {
				t.Errorf("%d denials were counted, want 1", denials.Count())
			}
			if len(*dialled) > 0 {
				t.Errorf("dialled %v, want none", *dialled)
			}
		})
	}
}

// TestLastCheck checks that the address to which the kernel connects is always checked.
func TestLastCheck(t *testing.T) {
	t.Parallel()
	d := &Dialer{Resolver: names{"public.test": {"203.0.113.5"}}}
	recording(t, d)
	d.connect = func(_ context.Context, nd *net.Dialer, _ string) (net.Conn, error) {
		return nil, nd.Control("tcp", "127.0.0.1:443", nil)
	}
	_, err := dial(t, d, "public.test", 443)
	if denied, ok := errors.AsType[*DeniedError](err); !ok || denied.Address.String() != "127.0.0.1" {
		t.Errorf("got %v, want a *DeniedError of the address %q", err, "127.0.0.1")
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection refused")
	d := &Dialer{Resolver: names{"down.test": {"127.0.0.1", "203.0.113.5"}}}
	recording(t, d)
	d.connect = func(context.Context, *net.Dialer, string) (net.Conn, error) { return nil, broken }
	if _, err := dial(t, d, "down.test", 1); !errors.Is(err, broken) {
		t.Errorf("want the failure, not the denial: %v", err)
	}
	if _, err := dial(t, d, "nowhere.test", 1); err == nil {
		t.Error("no error for an unknown name")
	} else if dns, ok := errors.AsType[*net.DNSError](err); !ok || !dns.IsNotFound {
		t.Errorf("got %v, want a *net.DNSError that says not found", err)
	}
	for _, host := range []string{"", strings.Repeat("a", 254)} {
		if _, err := dial(t, d, host, 1); err == nil || len(err.Error()) > 400 {
			t.Errorf("%.10q: got %v, want at most 400 bytes", host, err)
		}
	}
	if _, err := dial(t, d, "down.test", 0); err == nil {
		t.Error("port 0, want an error")
	}
}

// TestThisMachine checks a dialer with the real resolver, interfaces and kernel.
func TestThisMachine(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Do(t, err)
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).AddrPort().Port()
	hosts := []string{"localhost", "127.0.0.1", "::ffff:127.0.0.1"}
	own, err := (&Dialer{}).ownAddresses()
	if err != nil || len(own) == 0 {
		t.Fatalf("got %v, %v, want an address and no error", own, err)
	}
	for _, a := range own {
		hosts = append(hosts, a.String())
	}
	for _, host := range hosts {
		if conn, err := dial(t, &Dialer{}, host, port); err == nil {
			_ = conn.Close()
			t.Errorf("%s is reachable", host)
		} else if _, ok := errors.AsType[*DeniedError](err); !ok {
			t.Errorf("%s: got %v, want a *DeniedError", host, err)
		}
	}
}

// TestTimesOfDials checks for how long a name is dialled, and for how long each of its addresses, directly and through a
// proxy.
func TestTimesOfDials(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		proxy string
		times []time.Duration // until the end of each attempt that begins in time
	}{
		"directly":        {"", []time.Duration{30 * time.Second}},
		"through a proxy": {"http://" + elsewhere + ":3128", []time.Duration{15 * time.Second, 15 * time.Second}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var times []time.Duration
			d := &Dialer{Resolver: names{"two.test": {"203.0.113.1", "203.0.113.2"}}, own: func() ([]netip.Addr, error) { return nil, nil }}
			d.connect = func(ctx context.Context, nd *net.Dialer, _ string) (net.Conn, error) {
				until, limited := ctx.Deadline()
				if !limited || nd.Timeout != 10*time.Second {
					t.Errorf("%s: an attempt has the deadline %v, and takes up to %v", name, until, nd.Timeout)
				}
				if left := time.Until(until); left > 0 {
					times = append(times, left)
				}
				<-ctx.Done()
				return nil, ctx.Err()
			}
			if tt.proxy != "" {
				d.Proxy = func(string) (*url.URL, error) { return url.Parse(tt.proxy) }
			}
			began := time.Now()
			if _, err := d.dial(t.Context(), nil, false, "two.test", 443); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: got error %v, want %v", name, err, context.DeadlineExceeded)
			}
			if took := time.Since(began); took != 30*time.Second || !slices.Equal(times, tt.times) {
				t.Errorf("%s: it took %v, with attempts of %v, want 30s with %v", name, took, times, tt.times)
			}
		})
	}
}
